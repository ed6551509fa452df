"""The race of a configuration and of a version: which pairs the main learner learns, and which arms stand
beside it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from checkpoints.manifest import Manifest
from daemon.config.schema import Config
from daemon.exits import EX_CONFIG, UserError
from daemon.versions.contents import DROPPED, PAIRS
from daemon.versions.order import ARMS
from learners.arms import ArmConfig, PairRule

RACE = "race"
"""The control entry from which on the main learner learns `pairs`, and the arms are `arms`: those with the
settings that they had keep what they have learned, others begin untrained. `dropped_arms`: see `DROPPED`."""
DEFAULT_ARMS = (ArmConfig("all", random=False), ArmConfig("above", "above"))
"""Every skipped object, and what users have surely passed: which of the two clicks obey differs by log."""
Records = Sequence[Mapping[str, Any]]


def arms_of(config: Config) -> tuple[ArmConfig, ...]:
    """The arms of a configuration. Raises UserError where arms are named that cannot be."""
    named, fault = config.learner.race.arms, config.arms_fault
    if named is None:
        return DEFAULT_ARMS if config.has_default_arms else ()
    if named and fault:
        raise UserError(f"learner.race.arms: {fault}", 'set it to "auto" or "none"', EX_CONFIG)
    return tuple(one.arm() for one in named)


def race_settings(config: Config) -> dict[str, Any]:
    """What a manifest's learner settings hold of the race, with nothing dropped. Raises UserError."""
    return {PAIRS: config.learner.pairs, ARMS: [one.record for one in arms_of(config)]}


def recorded_race(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a manifest's learner settings; versions without any learned every pair, without arms."""
    return {
        PAIRS: settings.get(PAIRS, "all"),
        ARMS: list(settings.get(ARMS, [])),
        DROPPED: list(settings.get(DROPPED, [])),
    }


def race_of(manifest: Manifest) -> tuple[PairRule, tuple[ArmConfig, ...]]:
    """The pairs that a version's main learner learns, and its arms. KeyError, TypeError or ValueError for
    what is no record."""
    return raced(recorded_race(manifest.learner.get("config", {})))


def raced(record: Mapping[str, Any]) -> tuple[PairRule, tuple[ArmConfig, ...]]:
    """The same of what `recorded_race` gives, or of a control entry."""
    return cast(PairRule, record[PAIRS]), tuple(map(ArmConfig.of, record[ARMS]))


def without_dropped(settings: Mapping[str, Any], dropped: Records) -> dict[str, Any]:
    """Settings of a configuration without the arms that were dropped."""
    arms = [one for one in settings[ARMS] if one not in dropped]
    return {**settings, ARMS: arms, **({DROPPED: list(dropped)} if dropped else {})}


def dropping(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any] | None:
    """The race of a learner's settings without the arms of these names; None where it has none of them."""
    race = recorded_race(settings)
    gone = [one for one in race[ARMS] if one["name"] in set(names)]
    if not gone:
        return None
    return race | {ARMS: [one for one in race[ARMS] if one not in gone], DROPPED: [*race[DROPPED], *gone]}


def race_entry(race: Mapping[str, Any]) -> dict[str, Any]:
    """The control entry of a race that is another from here on."""
    return {"control": RACE, **race}
