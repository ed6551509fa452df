"""A folder put back from a copy, or emptied: noticed, told, and no number names two states."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from checkpoints.manifest import Manifest
from daemon.cli import main
from daemon.exits import EX_OK
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import catch_up, wait_until
from tests.harness.kill.random_kills import same_effect
from tests.harness.kill.site import Site, make_site
from tests.harness.kill.written import Written
from tests.kill.conftest import StreamIn

pytestmark = pytest.mark.kill


def learned(site: Site, forks: Forks, events: Written, times: int) -> None:
    """So many more versions, each by a learner of its own."""
    for _ in range(times):
        events.more(40)
        catch_up(site, forks)


def names(site: Site) -> dict[str, str]:
    """Every version kept: its name, and the hash of its state."""
    manifests = [site.versions.manifest(number) for number in site.versions.versions()]
    return {manifest.name: manifest.state_hash for manifest in manifests}


def controls(manifest: Manifest) -> list[object]:
    return [entry for entry in manifest.schedule if isinstance(entry, dict)]


def test_a_folder_put_back_from_a_copy_goes_on_with_a_line_of_its_own(
    tmp_path: Path, stream_in: StreamIn, forks: Forks
) -> None:
    site = make_site(tmp_path, stream_in(tmp_path), every="1h")
    events = Written(site)
    learned(site, forks, events, 1)
    shutil.copytree(site.checkpoints, tmp_path / "copy")
    learned(site, forks, events, 3)
    before, last = names(site), site.newest()
    assert last.line
    assert {name.partition("@")[0] for name in before} == {last.line}, "one line over all restarts"
    shutil.rmtree(site.checkpoints)
    shutil.copytree(tmp_path / "copy", site.checkpoints)
    with forks(site, "--exit-when-caught-up") as learner:
        assert learner.wait() == EX_OK, learner.said()
        assert "is an older copy" in learner.said()
        assert f'"written": {last.number}' in learner.said()
    newest = site.newest()
    assert newest.line not in ("", last.line)
    assert newest.number > last.number, "no number is used twice"
    assert controls(newest) == [
        {"control": "line", "from": last.name, "to": newest.line, "why": "restored"}
    ], newest.schedule
    after = names(site)
    assert all(after[name] == before[name] for name in before.keys() & after.keys())
    same_effect(newest, catch_up(site.again("whole", every="1h"), forks))
    assert main(["replay", "--verify", "--from", "0", "--config", str(site.config)]) == EX_OK
    learned(site, forks, events, 1)
    assert site.newest().line == newest.line, "which is kept from then on"
    assert not controls(site.newest())


def test_a_folder_emptied_while_it_is_learned_is_told_of_and_written_to_on_a_new_line(
    tmp_path: Path, forks: Forks
) -> None:
    site = make_site(tmp_path, every="200ms")
    events = Written(site)
    events.more(40)
    with forks(site) as learner:
        wait_until(lambda: len(site.versions.versions()) > 1, learner)
        last = site.newest()
        (tmp_path / "gone").mkdir()
        for child in list(site.checkpoints.iterdir()):  # moved: files that come and go make no folder stay
            child.rename(tmp_path / "gone" / child.name)
        wait_until(lambda: "was emptied" in learner.said(), learner)
        wait_until(lambda: learner.metric("tripletd_folder_losses_total") == 1, learner)
        events.more(40)
        wait_until(lambda: site.versions.versions() and site.newest().line != last.line, learner)
        events.more(40)
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    newest = site.newest()
    assert newest.number > last.number
    assert newest.line not in ("", last.line)
    found = [entry for n in site.versions.versions() for entry in controls(site.versions.manifest(n))]
    (entry,) = [one for one in found if isinstance(one, dict) and one["control"] == "line"]
    assert (entry["to"], entry["why"]) == (newest.line, "replaced")
    assert entry["from"].startswith(last.line)
    same_effect(catch_up(site, forks), catch_up(site.again("whole", every="1h"), forks))


def test_a_folder_found_empty_at_a_start_is_told_of(tmp_path: Path, forks: Forks) -> None:
    site = make_site(tmp_path, every="1h")
    events = Written(site)
    learned(site, forks, events, 2)
    last = site.newest()
    shutil.rmtree(site.checkpoints)
    with forks(site, "--exit-when-caught-up") as learner:
        assert learner.wait() == EX_OK, learner.said()
        assert "the stream was learned before" in learner.said()
        assert last.name in learner.said()
    assert site.newest().line not in ("", last.line)


def test_a_folder_that_is_away_while_it_is_learned_is_told_of_until_it_is_back(
    tmp_path: Path, forks: Forks
) -> None:
    site = make_site(tmp_path, every="200ms")
    events = Written(site)
    events.more(40)
    with forks(site) as learner:
        wait_until(lambda: len(site.versions.versions()) > 1, learner)
        wait_until(lambda: learner.get("readyz")[0] == 200, learner)
        last = site.newest()
        away = site.checkpoints.rename(tmp_path / "away")
        wait_until(
            lambda: "the checkpoint folder is gone: mount it again" in learner.get("readyz")[1], learner
        )
        wait_until(lambda: '"folder":"gone"' in learner.get("status")[1], learner)
        assert learner.metric("tripletd_folder_lost") == 1
        events.more(40)
        wait_until(lambda: learner.metric("tripletd_checkpoint_failures_total") > 0, learner)
        assert not site.checkpoints.exists(), "nobody makes another one in its place"
        away.rename(site.checkpoints)
        wait_until(lambda: learner.get("readyz")[0] == 200, learner)
        wait_until(lambda: site.newest().number > last.number, learner)
        wait_until(lambda: learner.metric("tripletd_folder_lost") == 0, learner)
        assert learner.metric("tripletd_folder_losses_total") == 1
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    events.more(40)
    newest = catch_up(site, forks)
    assert newest.line == last.line
    same_effect(newest, catch_up(site.again("whole", every="1h"), forks))
