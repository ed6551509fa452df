"""The settings of a sweep as configurations: each checked before anything runs, what is learned told from how
it is scored, and those that read the same told from others.

Settings that differ in [serving] alone have one learner: it learns once, and is scored in each form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xxhash import xxh3_128

from daemon.backfill.run import NOT_OF_W
from daemon.config import Config, load_config
from daemon.config.values import LIVE
from daemon.exits import EX_CONFIG, UserError
from daemon.feeding import negative_falls_from, position_weights, triplets_of
from daemon.sweep.grid import Setting
from daemon.versions.algorithms import ALGORITHMS

SAID = 5
"""Settings that a message names."""

LEARNED = ("space", "learner", "keys", "caps", "feed")
"""Sections that a version's state depends on, besides what is read."""
RUNS = "settings"
"""Folder of an --out folder with a checkpoint folder for each learner."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting, ready to run. config: its own, whose checkpoint folder is that of its learner. learned:
    digest of what its versions depend on; scored: of that and of how they are judged; reading: of what its
    triplets are made by."""

    setting: Setting
    config: Config
    learned: str
    scored: str
    reading: str


def trials_of(path: Path | None, settings: Sequence[Setting], out: Path) -> list[Trial]:
    """Every setting with its configuration. Raises UserError naming the settings that are not valid, each
    with its place and remedy."""
    found, refused = [], list[tuple[Setting, UserError]]()
    for setting in settings:
        try:
            found.append(_trial(load_config(path, setting.overrides()), setting, out))
        except UserError as error:
            refused.append((setting, error))
    if refused:
        lines = [f"{setting.name}: {error.message}" for setting, error in refused[:SAID]]
        more = f"\n{len(refused) - SAID} more" if len(refused) > SAID else ""
        raise UserError(
            f"{len(refused)} of {len(settings)} settings are not valid, and none was run\n"
            + "\n".join(lines)
            + more,
            refused[0][1].remedy or "correct or leave out these values; --grid twice takes two grids",
            refused[0][1].code,
        )
    return found


def check_base(config: Config) -> None:
    """Raise UserError for a configuration that no sweep can be made of."""
    if not config.catalog.path:
        message = "catalog.path is empty: every setting has to learn with the same objects"
        raise UserError(message, "name the objects with catalog.path", EX_CONFIG)
    if config.catalog.path.startswith(LIVE):
        raise UserError(
            "catalog.path: objects that live in a database or a topic may change from setting to setting",
            "name a file of them",
            EX_CONFIG,
        )
    if config.keys.slots:
        message = "keys.slots: with one model per key every key has measures of its own, and no setting one"
        raise UserError(message, "sweep with keys.slots = 0, and take the setting over", EX_CONFIG)
    config.space_spec()


def _trial(config: Config, setting: Setting, out: Path) -> Trial:
    if config.learner.algorithm not in ALGORITHMS:
        raise UserError(f"learner.algorithm: {config.learner.algorithm} is not known", code=EX_CONFIG)
    given = config.values()
    feed = {name: value for name, value in given["feed"].items() if name not in NOT_OF_W}
    stated = {name: given[name] for name in LEARNED} | {"feed": feed}
    # what depends on where a value came from, and on what a file holds
    feed |= {"falls_from": negative_falls_from(config), "weights": repr(position_weights(config))}
    feed |= triplets_of(config)
    learned, reading = _digest(stated), _digest(feed)
    scored = _digest({"learned": learned, "serving": given["serving"]})
    return Trial(setting, in_folder(config, out / RUNS / learned[:16], keep=1), learned, scored, reading)


def in_folder(config: Config, folder: Path, **kept: Any) -> Config:
    """The configuration with another checkpoint folder, and these other values of [checkpoints]."""
    checkpoints = config.checkpoints.model_copy(update={"path": str(folder), **kept})
    return replace(config, checkpoints=checkpoints, origins={**config.origins, "checkpoints.path": "cli"})


def _digest(stated: Mapping[str, Any]) -> str:
    return xxh3_128(json.dumps(stated, sort_keys=True, default=str).encode()).hexdigest()


def grouped(trials: Sequence[Trial], workers: int, most: int) -> list[list[Trial]]:
    """Trials that a worker takes together: learners of one reading, each with all forms that are asked for;
    as many learners as share out evenly, at most `most`."""
    readings: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        readings.setdefault(trial.reading, {}).setdefault(trial.learned, []).append(trial)
    groups: list[list[Trial]] = []
    for learners in readings.values():
        forms = list(learners.values())
        count = -(-len(forms) // min(most, -(-len(forms) // workers)))
        groups += [[one for same in forms[at::count] for one in same] for at in range(count)]
    return groups
