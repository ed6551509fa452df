"""A folder of a year is read like one of a day; an old one is folded once, when the learner starts."""

from __future__ import annotations

import math
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from checkpoints import Ledger, LocalStore, VersionStore, aliases, history
from daemon.cli import main
from daemon.exits import EX_OK
from daemon.look.curves import CurveReader
from daemon.models.actions import look
from tests.daemon.test_up import ROOT
from tests.harness import forked
from tests.harness.wakes import wakes_a_second
from tests.soak.long_history import WAIT_S, RunningRole, command, grow_old, young_folder

SETTLED_S = 12.0
"""What a start leaves to do, and silence after it."""
LOOKS = 4
"""A busy machine takes longer to settle, and wakes threads that wait for each other."""


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a folder with some versions."""
    return young_folder(tmp_path_factory.mktemp("young"))


def copied(young: Path, place: Path) -> Path:
    subprocess.run(["cp", "-a", f"{young.parent}/.", str(place)], check=True)
    return place / young.name


def test_a_year_of_versions_is_bounded_in_all_that_is_read(
    young: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = copied(young, tmp_path)
    store = LocalStore(tmp_path / "checkpoints")
    best = aliases(Ledger(store).entries()).get("best")
    grow_old(config, 1_000_000)
    versions, ledger = VersionStore(store), Ledger(store)
    assert versions.versions()[-1] == 999_999
    assert versions.newest_valid() is not None
    began = time.process_time()
    seen = look(versions, ledger)
    curves = CurveReader(versions, ledger).read()
    assert time.process_time() - began < 20
    assert 4000 < len(seen.entries) < 6000
    assert not seen.unreadable
    assert seen.means("best").version is not None or best is None
    assert len(store.list("ledger/")) < 1300
    assert 4000 < len(curves.current.points) < 6000
    assert len(curves.lines) < 10
    for words in (["status"], ["models", "list"], ["curves"]):
        assert main([*words, "--config", str(config)]) == EX_OK
    assert "999999" in capsys.readouterr().out
    assert ledger.append({"kind": "KEEP", "version": 999_999}).n == seen.last + 1


MOST_WAKES = {"learn": 25, "validate": 15, "serve": 40}
"""Of all threads of a role, per second."""


def test_a_role_at_rest_is_woken_rarely(young: Path, tmp_path: Path) -> None:
    """Each on a folder of its own, all looked at at once."""
    with ExitStack() as running:
        pids = []
        for role in MOST_WAKES:
            (tmp_path / role).mkdir()
            one = RunningRole(copied(young, tmp_path / role), role, forked.Popen)
            pids.append(running.enter_context(one)[0].pid)
        time.sleep(SETTLED_S)
        least = dict.fromkeys(MOST_WAKES, math.inf)
        for _ in range(LOOKS):
            with ThreadPoolExecutor() as each:
                looks = each.map(lambda pid: wakes_a_second(pid, 5.0), pids)
                least = {role: min(least[role], now) for role, now in zip(least, looks, strict=True)}
            if all(least[role] <= most for role, most in MOST_WAKES.items()):
                break
    assert all(least[role] <= most for role, most in MOST_WAKES.items()), least


def test_an_old_folder_is_folded_once_by_the_learner(young: Path, tmp_path: Path) -> None:
    config = copied(young, tmp_path)
    grow_old(config, 6_000, folded=False)
    store = LocalStore(tmp_path / "checkpoints")
    before = look(VersionStore(store), Ledger(store))
    assert len(store.list("ledger/")) == len(before.entries) > 5_900
    words = command(config, ["learn", "--exit-when-caught-up"])
    forked.run(words, cwd=ROOT, check=True, capture_output=True, timeout=WAIT_S)
    after = look(VersionStore(store), Ledger(store))
    assert len(store.list("ledger/")) < 100
    assert after.last == before.last
    assert 2_800 < len(after.entries) < 4_500
    assert after.entries[-2_000:] == before.entries[-2_000:]
    for name in ("best", "stable", "latest"):
        assert after.means(name) == before.means(name)
    assert len(history(store)) > 2_000
