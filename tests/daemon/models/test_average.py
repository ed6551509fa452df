"""Versions of two learners averaged into a folder of their own, which is served and learned on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from checkpoints import LocalStore, VersionStore
from daemon.cli import main
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_OK, EX_USAGE
from daemon.versions.restore import learner_of, serving_form
from learners import as_block
from tests.daemon.learn.conftest import DIM, Site, make_events


def config_of(site: Site) -> Path:
    """The site's settings as a file."""
    path = site.folder / "tripletd.toml"
    path.write_text(
        f'[stream]\naddress = "{site.address}"\n[space.views.x]\ndim = {DIM}\nmap = "identity"\n'
        f'[checkpoints]\npath = "{site.folder}/checkpoints"\nevery = "1h"\n[http]\nlearn_port = 0\n'
    )
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Site, Site]:
    """Two learners that began alike and learned different events; each has versions 0 and 1."""
    sites = []
    for number in range(2):
        folder = tmp_path / f"site{number}"
        folder.mkdir()
        site = Site(folder, f"log:{folder}/clicks.log")
        site.feed(make_events(60 + 40 * number, seed=number))
        sites.append(site)
        assert site.learn() == EX_OK
    return sites[0], sites[1]


def versions_of(folder: Path) -> VersionStore:
    return VersionStore(LocalStore(folder))


def averaged(pair: tuple[Site, Site], into: Path, *words: str) -> int:
    first, second = pair
    sources = ("1", f"{second.folder}/checkpoints:latest")
    return main(("models", "average", *sources, "--into", str(into), *words, "-c", str(config_of(first))))


def test_the_average_is_a_version_that_can_be_judged_served_and_gone_on_from(
    pair: tuple[Site, Site], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "average"
    assert averaged(pair, into, "--json", "--weight", "3", "--weight", "1") == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["number"], told["events"]) == (1, 160)
    made, mine = versions_of(into), [versions_of(site.folder / "checkpoints").load(1) for site in pair]
    assert made.versions() == [0, 1]
    first, mean = made.load(0), made.load(1)
    assert first.arrays["W"].tolist() == np.eye(DIM).tolist()
    expected = 0.75 * mine[0].arrays["W"].astype(float) + 0.25 * mine[1].arrays["W"]
    np.testing.assert_allclose(mean.arrays["W"], expected, atol=1e-7)
    assert int(mean.arrays["events"]) == 160
    assert mean.manifest.counters["records"] == 160
    assert mean.manifest.positions == mine[0].manifest.positions
    (entry,) = mean.manifest.schedule
    assert isinstance(entry, dict)
    assert [one["state_hash"] for one in entry["of"]] == [one.manifest.state_hash for one in mine]
    assert [one["weight"] for one in entry["of"]] == [3.0, 1.0]
    rows = as_block(np.random.default_rng(0).standard_normal((5, DIM)).astype(np.float32))
    form = serving_form(made, mean, pair[0].config().serving)
    assert np.isfinite(form.scores(rows, rows)).all()
    pair[0].feed(make_events(30, seed=9))
    assert pair[0].learn(checkpoints__path=str(into)) == EX_OK
    gone_on = made.load(made.versions()[-1])
    assert (gone_on.manifest.parent, gone_on.manifest.counters["records"]) == (1, 190)
    assert int(learner_of(gone_on).state()["events"]) == 190


def test_a_replay_says_that_no_event_leads_to_an_average(
    pair: tuple[Site, Site], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "average"
    assert averaged(pair, into) == EX_OK
    at = ("-c", str(config_of(pair[0])), "--set", f"checkpoints.path={into}")
    assert main(("replay", "--verify", *at)) == EX_DATAERR
    assert "no event of this log leads to it" in capsys.readouterr().err
    pair[0].feed(make_events(30, seed=9))
    assert pair[0].learn(checkpoints__path=str(into)) == EX_OK
    assert main(("replay", "--verify", "--from", "1", *at)) == EX_OK


def test_what_cannot_be_averaged_is_refused_and_nothing_is_written(
    pair: tuple[Site, Site], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = pair
    into, at = tmp_path / "average", ("-c", str(config_of(first)))
    full = tmp_path / "full"
    full.mkdir()
    (full / "note").write_text("mine")
    assert averaged(pair, full) == EX_CANTCREAT
    assert sorted(path.name for path in full.iterdir()) == ["note"]
    third = tmp_path / "third"
    third.mkdir()
    other = Site(third, f"log:{third}/clicks.log")
    other.settings["learner.C"] = 0.5
    other.feed(make_events(10))
    assert other.learn() == EX_OK
    for source, code, told in (
        (f"{third}/checkpoints:1", EX_USAGE, "has another settings than"),
        (f"{tmp_path}/nowhere:1", 69, "no such folder"),
        ("7", EX_USAGE, "there is no version 7"),
    ):
        assert main(("models", "average", "1", source, "--into", str(into), *at)) == code
        assert told in capsys.readouterr().err
    assert averaged(pair, into, "--weight", "1") == EX_USAGE
    assert averaged(pair, into, "--weight", "0", "--weight", "0") == EX_DATAERR
    state = next((second.folder / "checkpoints" / "versions").glob("*1/state-*"))
    state.chmod(0o600)
    state.write_bytes(state.read_bytes()[:-4])
    assert averaged(pair, into) == EX_DATAERR
    assert "does not load" in capsys.readouterr().err
    assert not into.exists()


def test_only_learners_of_one_matrix_are_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    site.settings["learner.algorithm"] = "soml-da"
    site.feed(make_events(20))
    assert site.learn() == EX_OK
    shutil.copytree(site.folder / "checkpoints", tmp_path / "copy")
    sources, into = ("1", f"{tmp_path}/copy:1"), str(tmp_path / "average")
    words = ("models", "average", *sources, "--into", into, "-c", str(config_of(site)))
    assert main(words) == EX_DATAERR
    assert "only W and events are averaged" in capsys.readouterr().err
