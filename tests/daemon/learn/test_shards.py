"""Shards from outside: how they are started, how their number changes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from checkpoints.entries import aliases
from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.versions import VersionStore
from daemon.cli import main
from daemon.config import Config, load_config
from daemon.exits import EX_CONFIG, EX_OK
from daemon.look.live import LearnStatus, MergeStatus, status_at, together
from daemon.look.status import collect
from daemon.replica.replica import Replica
from daemon.replica.settings import Flip, Hooks, VersionSource, read_space
from daemon.replica.view import ModelId
from daemon.versions.shards import MergeRecord
from streams.errors import OffsetExpired
from streams.open import open_source
from streams.source import RecordBatch, Source
from tests.daemon.replica.world import QUICK
from tests.daemon.test_up import CONFIG, ROOT, clicks
from tests.harness import forked
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.learners import catch_up
from tests.harness.kill.shards import check_merged, merged_end, sharded, sharded_site
from tests.harness.kill.site import SPARSE, Site, embedded
from tests.harness.log_lines import json_lines
from tests.harness.waiting import until

PARTITIONS = 3
QUICKLY = Pace(0.001)


def with_count(site: Site, before: int, now: int) -> None:
    """Another number of shards in the configuration."""
    text = site.config.read_text(encoding="utf-8")
    site.config.write_text(text.replace(f"count = {before}", f"count = {now}"), encoding="utf-8")


def feed(site: Site, until: int, written: int = 0, pace: Pace = QUICKLY) -> int:
    """Events up to that number, but for those that were written."""
    feeder = Feeder(site, 1 + written, pace, limit=until)
    feeder.written = written
    with feeder:
        feeder.join()
    return feeder.written


def test_up_learns_with_shards_and_judges_what_they_are_together(tmp_path: Path) -> None:
    config = tmp_path / "tripletd.toml"
    config.write_text(
        CONFIG.replace("[space", "partitions = 4\n[space") + "merge_port = 0\nshard_ports = 0\nup_port = 0\n"
    )
    (tmp_path / "clicks.jsonl").write_text(clicks(200))
    assert main(["feed", str(tmp_path / "clicks.jsonl"), "--config", str(config)]) == EX_OK
    ended = forked.run(
        [
            *(sys.executable, "-m", "daemon", "up", "--config", str(config)),
            *("--shards", "2", "--exit-when-caught-up"),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == EX_OK, ended.stderr
    store = LocalStore(tmp_path / "checkpoints")
    versions, entries = VersionStore(store), Ledger(store).entries()
    last = versions.manifest(versions.versions()[-1])
    record = MergeRecord.in_version(last)
    assert record is not None
    assert [part.shard for part in record.parts] == [0, 1]
    assert "best" in aliases(entries)
    assert last.number in {entry.version for entry in entries if entry.kind == "KEEP"}


def test_the_number_of_shards_changes_and_goes_back_to_one_learner(tmp_path: Path) -> None:
    site = sharded_site(tmp_path, embedded(tmp_path), SPARSE, 2, PARTITIONS)
    written = feed(site, 100)
    check_merged(site, merged_end(site, 2), written)
    with_count(site, 2, 3)
    written = feed(site, 200, written)
    check_merged(site, merged_end(site, 3), written)
    with_count(site, 3, 0)
    written = feed(site, 300, written)
    check_merged(site, catch_up(site), written)


def test_a_shard_of_another_number_stops_and_says_why(tmp_path: Path) -> None:
    site = sharded_site(tmp_path, embedded(tmp_path), SPARSE, 2, PARTITIONS)
    feed(site, 50)
    merged_end(site, 2)
    with_count(site, 2, 3)
    feed(site, 80, 50)
    merged_end(site, 3)
    words = ["learn", "--config", str(site.config), "--shard", "0", "--set", "shards.count=2"]
    ended = forked.run(
        [sys.executable, "-m", "daemon", *words], stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )
    assert ended.returncode == EX_CONFIG
    assert "the number of shards was changed" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learn"], "[shards] count is 2: each learner is one of these"),
        (["learn", "--shard", "2"], "there are 2 shards, counted from 0"),
        (["learn", "--shard", "0", "--set", "shards.count=0"], "[shards] count is 0"),
        (["learn", "--shard", "3", "--set", "shards.count=4"], "there is none for shard 3 of 4"),
        (["merge", "--set", "shards.count=0"], "there is nothing to merge"),
        (["replay", "--shard", "2"], "[shards] count is 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    site = sharded_site(tmp_path, embedded(tmp_path), SPARSE, 2, PARTITIONS)
    LocalStore(site.checkpoints).put_new("placeholder", [b""])
    assert main([*words, "--config", str(site.config)]) == EX_CONFIG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("expired", [False, True])
def test_answers_never_lose_what_was_learned_when_a_merged_version_comes(
    tmp_path: Path, expired: bool
) -> None:
    """expired: the log cannot be read on from where a version's steps begin, each time one is loaded; then it
    answers without them, and they are found again."""
    site = sharded_site(tmp_path, embedded(tmp_path), SPARSE, 2, PARTITIONS)
    told: list[Flip] = []
    answering: list[ModelId] = []
    with sharded(site, 2):
        written = feed(site, 60)
        until(lambda: is_merged(site, written), "there is a version to begin from")
        found = read_space(site.versions)
        assert found is not None
        config = load_config(site.config, {}, {})
        source = VersionSource(site.versions, Ledger(LocalStore(site.checkpoints)), found[0], config.serving)

        def flipped(flip: Flip) -> None:
            told.append(flip)
            with replica.read() as view:
                answering.append(view.model)

        def steps() -> Source:
            opened = open_source(site.address.steps)
            return cast("Source", Expiring(opened)) if expired else opened

        replica = Replica("latest", source, QUICK, Hooks(flipped=flipped), steps)
        replica.start()
        try:
            for upto in range(400, 4000, 100):
                written = feed(site, upto, written, Pace(0.02, most=3))
                if sum(flip.result == "version" for flip in told) > 3:  # a busy machine merges less often
                    break
            until(lambda: stands_at(replica, written), "all is followed")
        finally:
            replica.close()
    shown = [flip.model.total for flip in told]
    behind = [flip.model.behind for flip in told if flip.result == "version"]
    assert len(behind) > 3
    if not expired:
        assert shown == sorted(shown)
        assert max(behind) > 0, "a merged version answers with what came since"
    times = [int(time) for flip in told for time in flip.event_times]
    assert len(times) == len(set(times)), "each event once"
    assert answering == [flip.model for flip in told], "an answer names the model that gave it"


def stands_at(replica: Replica, records: int) -> bool:
    """Whether so many records are in what answers."""
    model = replica.status().model
    return model is not None and model.total == records


class Expiring:
    """A log that has lost what is read first after a place was chosen, unless that is its beginning."""

    def __init__(self, source: Source) -> None:
        self._source, self._lost = source, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def assign(self, offsets: dict[int, int]) -> None:
        """Begin there."""
        self._source.assign(offsets)
        self._lost = offsets[0] > self._source.bounds()[0][0]

    def poll(self, most: int, timeout_s: float) -> RecordBatch | None:
        """What comes next."""
        if self._lost:
            self._lost = False
            raise OffsetExpired(0, 1, 2)
        return self._source.poll(most, timeout_s)


def test_status_and_page_know_each_shard_and_what_they_do_together(tmp_path: Path) -> None:
    site = sharded_site(tmp_path, embedded(tmp_path), SPARSE, 2, PARTITIONS)
    written = feed(site, 60)
    with sharded(site, 2) as run:
        until(lambda: len(ports_of(site)) == 3, "all have a port")
        ports = ports_of(site)
        config = load_config(site.config, {"http.merge_port": ports["merge"]}, {})
        until(lambda: is_merged(site, written), "all is merged")
        shards = {f"shard {k}": answer(config, ports[f"learn-{k}"]) for k in (0, 1)}
        found = together({name: one for name, one in shards.items() if isinstance(one, LearnStatus)})
        assert found is not None
        assert sum(found.events.values()) + sum(found.dead_letters.values()) >= written
        assert found.not_ready is None
        picture = until(lambda: (one := collect(config))["live"]["merge"] is not None and one, "it answers")
        assert picture["live"].keys() == {"merge", "learn-0", "learn-1", "validate", "serve"}
        merge = picture["live"]["merge"]
        assert isinstance(merge, MergeStatus)
        assert merge.merges > 0
        assert "versions merged since its start" in merge.line()
        nothing_waits = {"0": 0, "1": 0}  # which it sees at its next look
        until(lambda: answer(config, ports["merge"]).unmerged == nothing_waits, "nothing waits")
        run.running[1].kill()
        gone = together({"shard 0": shards["shard 0"], "shard 1": status_at(config.http, ports["learn-1"])})
        assert gone is not None
        assert gone.not_ready == "shard 1 does not answer"


def answer(config: Config, port: int) -> Any:
    """The status of a process that is there: on a busy machine it may take longer than is waited for one."""
    return until(lambda: status_at(config.http, port), "it answers")


def ports_of(site: Site) -> dict[str, int]:
    """The port of each process, by the role that its log lines name."""
    lines = json_lines(site.stderr.read_text())
    return {line["role"]: urlsplit(line["url"]).port or 0 for line in lines if "url" in line}


def is_merged(site: Site, written: int) -> bool:
    """Whether a merged version holds so many records."""
    return bool(site.versions.versions()) and site.newest().counters.get("records", 0) == written
