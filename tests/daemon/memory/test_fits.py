"""A learner that does not fit is refused before anything is allocated, and what is offered instead fits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from daemon.config import load_config
from daemon.config.learners import LEARNERS
from daemon.config.load import flatten
from daemon.exits import EX_CONFIG
from daemon.memory.beforehand import rough_bound
from daemon.memory.fits import refusal
from daemon.memory.needs import MemoryNeed, RoleName, learner_bytes, need_of, needs_of_up, state_parts
from daemon.memory.remedies import MOST_OFFERED, alternatives
from daemon.memory.room import MemoryBound

MIB, GIB = 1 << 20, 1 << 30
SPARSE = {"space.views.x.kind": "sparse", "space.views.x.dim": 100_000}
DENSE = {"space.views.x.dim": 16_384, "space.views.x.map": "unit", "learner.algorithm": "oasis"}
TENANTS = {"space.views.x.dim": 384, "keys.slots": 10_000}
SUPPORTS = {
    "space.views.x.dim": 384,
    "learner.algorithm": "omks",
    "learner.objects": 200_000,
    "learner.triplets": 400_000,
}
TWO = {**DENSE, "space.views.y.dim": 300, "serve.aliases": ["stable", "latest", "best"]}
BY_KEY = sorted(name for name in LEARNERS if not {"objects", "entries"} & set(LEARNERS[name].model_fields))
"""Learners that have models by key."""
NAMES = ["stable", "latest", "best", "other"]
ROLES: tuple[RoleName, ...] = ("learn", "merge", "validate", "serve", "backfill")


def bound(free: int, *, shared: bool = True) -> list[MemoryBound]:
    return [MemoryBound("the control group /a", free, 2 * free, shared)]


def needs_of(settings: Mapping[str, Any], what: str) -> list[MemoryNeed]:
    config = load_config(None, settings, {})
    return needs_of_up(config) if what == "up" else [need_of(config, what)]  # type: ignore[arg-type]


def offered(text: str) -> list[dict[str, Any]]:
    """The settings that a remedy offers, each as a file would be read."""
    _, *blocks = text.replace("\nor\n", "\nset in the configuration\n").split("set in the configuration\n")
    return [{".".join(path): leaf for path, leaf in flatten(tomllib.loads(one))} for one in blocks]


@pytest.mark.parametrize("what", [*ROLES, "up"])
@pytest.mark.parametrize("asked", [SPARSE, DENSE, TENANTS, SUPPORTS, TWO], ids=lambda one: str(len(one)))
def test_what_is_offered_fits(asked: dict[str, Any], what: str) -> None:
    config, needs = load_config(None, asked, {}), needs_of(asked, what)
    free = max(sum(one.nbytes for one in needs) // 6, 900 * MIB if what == "up" else 250 * MIB)
    found = refusal(needs, config, bound(free), what)
    assert found is not None
    assert found.code == EX_CONFIG
    choices = offered(found.remedy)
    assert 1 <= len(choices) <= MOST_OFFERED
    for choice in choices:
        changed = {**asked, **choice}
        if "learner.algorithm" in choice:  # its keys are those of another learner
            changed = {
                key: v for key, v in changed.items() if key in choice or not key.startswith("learner.")
            }
        again = load_config(None, changed, {})
        learner_bytes(again)
        assert refusal(needs_of(changed, what), again, bound(free), what) is None, choice


def test_it_says_what_is_needed_for_what_and_what_there_is() -> None:
    config = load_config(None, {**SPARSE, "learner.algorithm": "oasis-averaged"}, {})
    found = refusal([need_of(config, "learn")], config, bound(GIB), "learn")
    assert found is not None
    assert found.message == (
        "learn: oasis-averaged needs 74.7 GiB: W 100,000 x 100,000 37.3 GiB, the sum of all W 100,000 x"
        " 100,000 37.3 GiB; 1.0 GiB of memory are free of 2.0 GiB (the control group /a)"
    )
    assert 'algorithm = "oasis-diagonal"' in found.remedy


def test_one_more_byte_is_refused() -> None:
    config = load_config(None, DENSE, {})
    need = need_of(config, "learn")
    assert refusal([need], config, bound(need.nbytes), "learn") is None
    assert refusal([need], config, bound(need.nbytes - 1), "learn") is not None
    assert refusal([need], config, bound(need.nbytes - 9), "learn", running=9) is None
    assert refusal([need], config, [], "learn") is None


def test_several_processes_share_a_group_but_not_the_limit_of_a_process() -> None:
    config = load_config(None, DENSE, {})
    need = need_of(config, "learn")
    assert refusal([need, need], config, bound(need.nbytes), "backfill") is not None
    assert refusal([need, need], config, bound(need.nbytes, shared=False), "backfill") is None


def test_nothing_is_offered_that_would_not_do() -> None:
    config = load_config(None, DENSE, {})
    found = refusal([need_of(config, "learn")], config, bound(MIB), "learn")
    assert found is not None
    assert "there is no learner for so little" in found.remedy
    assert alternatives(config, MIB, lambda one: need_of(one, "learn").nbytes) == []


def test_no_learner_is_offered_that_refuses_so_many_columns() -> None:
    config = load_config(
        None, {**SPARSE, "space.views.x.dim": 5_000, "learner.algorithm": "oasis-averaged"}, {}
    )
    loreta = load_config(None, {**SPARSE, "space.views.x.dim": 5_000, "learner.algorithm": "loreta"}, {})
    free = need_of(loreta, "learn").nbytes
    assert need_of(config, "learn").nbytes > free
    found = alternatives(config, free, lambda one: need_of(one, "learn").nbytes)
    assert found
    assert "loreta" not in {one.settings.get("learner", {}).get("algorithm") for one in found}


def test_tenants_are_offered_one_shared_matrix_with_the_largest_rank_that_fits() -> None:
    config = load_config(None, {**TENANTS, "learner.algorithm": "oasis"}, {})
    ranks = []
    for free in (GIB, 700 * MIB, 400 * MIB):
        first, *_ = alternatives(config, free, lambda one: need_of(one, "learn").nbytes)
        assert first.settings["learner"]["algorithm"] == "loreta"
        ranks.append(first.settings["learner"]["rank"])
    assert ranks == [16, 8, 4]


@pytest.mark.parametrize("name", sorted(LEARNERS))
@pytest.mark.parametrize("slots", [0, 7])
def test_the_parts_of_a_state_are_all_of_it(name: str, slots: int) -> None:
    if slots and name not in BY_KEY:
        return
    config = load_config(None, {"space.views.x.dim": 200, "learner.algorithm": name, "keys.slots": slots}, {})
    assert sum(part.nbytes for part in state_parts(config)) == learner_bytes(config)
    assert all(part.nbytes >= 0 for part in state_parts(config))


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_the_rough_bound_is_one(name: str) -> None:
    """Where it has room `up` asks no further: so nothing that does not fit may pass it."""
    for settings in (
        {},
        {"keys.slots": 50},
        {"shards.count": 3, "serve.processes": 2},
        {"serve.aliases": NAMES},
    ):
        if settings.get("keys.slots") and name not in BY_KEY:
            continue
        wide = {"space.views.x.dim": 20_000, "space.views.x.map": "unit", "learner.algorithm": name}
        config = load_config(None, {**wide, **settings}, {})
        assert sum(one.nbytes for one in needs_of_up(config)) <= rough_bound(config)


ROOT = Path(__file__).parents[3]
LIMIT = 8 * GIB
"""Of address space: enough to start, and less than half of W."""
CONFIG = """
[stream]
address = "log:clicks.log"
[learner]
algorithm = "{algorithm}"
[space.views.x]
kind = "sparse"
dim = 60000
[http]
learn_port = 0
validate_port = 0
serve_port = 0
up_port = 0
"""


def _limited(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "daemon", *arguments, "--config", str(folder / "tripletd.toml")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
    )


@pytest.mark.parametrize("command", ["learn", "up"])
def test_a_process_with_a_limit_is_refused_before_it_allocates(tmp_path: Path, command: str) -> None:
    (tmp_path / "tripletd.toml").write_text(CONFIG.format(algorithm="oasis"))
    done = _limited(tmp_path, command, "--exit-when-caught-up")
    assert done.returncode == EX_CONFIG, done.stderr
    assert "W 60,000 x 60,000 13.4 GiB" in done.stderr
    assert "the limit of a process (ulimit -v)" in done.stderr
    assert 'algorithm = "oasis-diagonal"' in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert not list((tmp_path / "checkpoints").glob("versions/*"))
    if command == "up":
        assert done.stderr.startswith("tripletd: up: oasis"), "before it starts any role"
        return
    (tmp_path / "tripletd.toml").write_text(CONFIG.format(algorithm="oasis-diagonal"))
    done = _limited(tmp_path, command, "--exit-when-caught-up")
    assert done.returncode == 0, done.stderr


def test_the_objects_of_a_catalog_are_counted_where_they_are_kept() -> None:
    config = load_config(None, {"space.views.x.dim": 100, "learner.algorithm": "oasis"}, {})
    for role, own in (("learn", 1), ("validate", 1), ("serve", 1), ("backfill", 1), ("merge", 0)):
        more = need_of(config, role, 50_000).nbytes - need_of(config, role).nbytes  # type: ignore[arg-type]
        assert more == own * 4 * 100 * 50_000
    need = need_of(config, "learn", 50_000)
    found = refusal([need], config, bound(need.nbytes - 1), "learn", items=50_000)
    assert found is not None
    assert "50,000 objects 19.1 MiB" in found.message
