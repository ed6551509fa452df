"""`tripletd feed --follow` from the command line: what it writes, tells, refuses and goes on from."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_OK, EX_USAGE
from daemon.look.live import FeedStatus, role_status
from tests.daemon.test_feed_command import events_of, impressions_of
from tests.harness import forked
from tests.harness.log_lines import json_lines
from tests.harness.waiting import until

COMMAND = [sys.executable, "-m", "daemon"]
TS = 1_700_000_000_000
CONFIG = """
[stream]
address = "log:{folder}/clicks.log"
[checkpoints]
path = "{folder}/checkpoints"
[http]
learn_port = 0
validate_port = 0
serve_port = 0
up_port = 0
feed_port = 0
[log]
format = "json"
[feed]
holdout_share = 0.3
random_negatives = 0
[feed.follow]
sources = ["raw/*.jsonl"]
window = "5s"
lateness = "1s"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "tripletd.toml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path


def write(site: Path, *said: dict[str, Any], name: str = "one") -> None:
    with (site / "raw" / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in said)


def view(number: int) -> dict[str, Any]:
    shown = [f"p{number + rank}" for rank in range(4)]
    said = {"event": "impression", "impression": f"i{number}", "ts": TS + number * 1_000}
    return {**said, "query": f"q{number}", "shown": shown}


def click(number: int, rank: int = 2, after: int = 10) -> dict[str, Any]:
    said = {"event": "click", "impression": f"i{number}", "ts": TS + number * 1_000 + after}
    return {**said, "object": f"p{number + rank}"}


def follow(site: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, "feed", "--follow", "--config", str(site / "tripletd.toml"), *words]
    return forked.run(command, capture_output=True, check=False, timeout=120)


def caught_up(site: Path, *words: str) -> str:
    done = follow(site, "--exit-when-caught-up", *words)
    assert done.returncode == EX_OK, done.stderr.decode()
    return done.stderr.decode()


def fed(site: Path) -> tuple[list[str], list[str]]:
    """Ids of training events and of held-out lists."""
    events = [event.id for event in events_of(f"log:{site}/clicks.log")]
    return events, [one.id for one in impressions_of(site / "clicks.log")]


def test_lists_and_clicks_that_come_apart_over_several_starts(site: Path) -> None:
    for start in range(0, 60, 20):
        write(site, *(view(number) for number in range(start, start + 20)), name="views")
        write(site, *(click(number) for number in range(start, start + 20)), name="clicks")
        caught_up(site)
    write(site, view(100))
    caught_up(site)
    events, held = fed(site)
    trained = {event.split("/")[0] for event in events}
    assert len(events) == len(set(events)) == 3 * len(trained)  # two above the click, one below
    assert trained.isdisjoint(held)
    assert trained | set(held) == {f"i{number}" for number in range(60)}
    assert len(held) == len(set(held))


def test_a_late_click_is_a_correction(site: Path) -> None:
    (site / "tripletd.toml").write_text(
        CONFIG.format(folder=site).replace("holdout_share = 0.3", "holdout_share = 0.0")
    )
    write(site, view(0), click(0, 3), view(50))
    caught_up(site)
    assert set(fed(site)[0]) == {"i0/3/0", "i0/3/1", "i0/3/2"}
    write(site, click(0, 2, after=8_000))
    caught_up(site)
    caught_up(site)
    assert sorted(fed(site)[0]) == sorted(["i0/3/0", "i0/3/1", "i0/3/2", "i0/2/0", "i0/2/1", "i0/2/3"])


@pytest.mark.parametrize("cut", [20, 40])
def test_drawn_objects_weigh_after_a_restart_as_they_would_have_without(tmp_path: Path, cut: int) -> None:
    weights = []
    for name, starts in (("whole", [0, 60]), ("cut", [0, cut, 60])):
        site = tmp_path / name
        (site / "raw").mkdir(parents=True)
        text = CONFIG.format(folder=site).replace(
            "random_negatives = 0", "random_negatives = 1\nnegative_falls_from = 30"
        )
        (site / "tripletd.toml").write_text(text)
        for start, end in itertools.pairwise(starts):
            write(site, *(one for number in range(start, end) for one in (view(number), click(number))))
            caught_up(site)
        events = events_of(f"log:{site}/clicks.log")
        weights.append({event.id: event.weight for event in events})
    assert weights[0] == weights[1]
    assert min(weights[0].values()) < 0.6


def test_it_runs_and_tells_until_it_is_stopped(site: Path) -> None:
    command = [*COMMAND, "feed", "--follow", "--config", str(site / "tripletd.toml")]
    with (site / "said").open("wb") as said:
        process = forked.Popen(command, stderr=said)
    try:
        url = until(lambda: _url(site / "said"), seconds=60)
        write(site, *(view(number) for number in range(20)), *(click(number) for number in range(10)))
        write(site, {"event": "scroll"}, view(1))
        until(lambda: len(fed(site)[0]) > 0 if (site / "clicks.log").exists() else False, seconds=60)
        status = until(lambda: _status(url, records=32), "all records are read")
        assert status.not_ready is None
        assert "lists fed" in status.line()
        with urllib.request.urlopen(f"{url}/metrics") as page:
            told = page.read().decode()
        assert 'tripletd_feed_ignored_total{reason="other_action"} 1.0' in told
        second = follow(site)
        assert second.returncode == EX_CANTCREAT
        assert b"another `tripletd feed --follow`" in second.stderr
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == EX_OK


def test_it_tells_how_likely_ranks_are_examined(site: Path) -> None:
    """Of users who click rank r with .9 / r in lists of a random order."""
    with (site / "tripletd.toml").open("a") as file:
        file.write('shuffled = ["random"]\n')
    draw, lines = np.random.default_rng(0), []
    for number in range(2_000):
        shown = [f"p{one}" for one in draw.permutation(8)[:4]]
        one = {"event": "impression", "impression": f"i{number}", "ts": TS + number * 10, "src": "random"}
        lines.append({**one, "query": "q", "shown": shown})
        for rank in np.flatnonzero(draw.random(4) < 0.9 / np.arange(1, 5)):
            said = {"event": "click", "impression": f"i{number}", "ts": TS + number * 10 + 5}
            lines.append({**said, "object": shown[rank]})
    write(site, *lines, lines[0])
    command = [*COMMAND, "feed", "--follow", "--config", str(site / "tripletd.toml")]
    with (site / "said").open("wb") as said:
        process = forked.Popen(command, stderr=said)
    try:
        url = until(lambda: _url(site / "said"), seconds=60)

        def examined() -> FeedStatus | None:
            status = _status(url)
            return status if status is not None and status.examination else None

        status = until(examined, seconds=60)
        with urllib.request.urlopen(f"{url}/metrics") as page:
            told = page.read().decode()
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == EX_OK
    curve = [status.examination[str(rank)] for rank in range(1, 5)]
    assert curve == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.35)
    assert "; rank 4 is examined 0." in status.line()
    assert 'tripletd_feed_examination_error{rank="4"} 0.0' in told
    assert "tripletd_feed_examination_lists" in told


def _status(url: str, records: int = 0) -> FeedStatus | None:
    """What it says once it has read so many records; None also where it takes half a second to answer."""
    status = role_status("127.0.0.1", int(url.rpartition(":")[2]))
    return status if isinstance(status, FeedStatus) and status.records >= records else None


def _url(said: Path) -> str | None:
    lines = json_lines(said.read_text())
    ready = any(line["event"] == "ready" for line in lines)
    return next((line["url"] for line in lines if ready and "url" in line), None)


def test_a_damaged_checkpoint_gives_way_and_nothing_is_written_twice(site: Path) -> None:
    for start in range(0, 60, 20):
        write(site, *(view(number) for number in range(start, start + 20)))
        write(site, *(click(number) for number in range(start, start + 20)))
        caught_up(site)
    before = fed(site)
    newest = max((site / "checkpoints" / "feed").glob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:-1])
    assert "is damaged" in caught_up(site)
    assert fed(site) == before


def test_a_checkpoint_of_another_stream_is_refused(site: Path) -> None:
    write(site, view(0), click(0), view(50))
    caught_up(site)
    refused = follow(site, "--set", f"stream.address=log:{site}/other.log")
    assert refused.returncode == EX_CONFIG
    assert b"another stream" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("clicks.jsonl",), EX_USAGE, b"configuration alone"),
        (("--holdout-share", "0.0"), EX_USAGE, b"configuration alone"),
        (("--set", "feed.follow.sources="), EX_CONFIG, b"names nothing to follow"),
        (("--set", "feed.follow.mapping=nothing"), EX_CONFIG, b"feed.follow.mapping"),
        (("--set", "feed.follow.sources=kafka:nothing"), EX_CONFIG, b"feed.follow.sources"),
        (
            (
                *("--set", "feed.follow.registry.url=https://registry"),
                *("--set", "feed.follow.registry.cafile=nothing.pem"),
            ),
            EX_CONFIG,
            b"feed.follow.registry.cafile",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(
    site: Path, words: tuple[str, ...], code: int, text: bytes
) -> None:
    refused = follow(site, *words)
    assert refused.returncode == code, refused.stderr.decode()
    assert text in refused.stderr
    assert b"Traceback" not in refused.stderr
