"""The algorithms that [learner] can name, and whose keys are whose.

Two algorithms may have a key of one name; it then has one type, since environment and command line give a
value as text before the algorithm is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.config.learners.common import LearnerConfig
from daemon.config.learners.distance import DissimKeys, LegoKeys
from daemon.config.learners.oasis import AveragedKeys, OasisKeys
from daemon.config.learners.omks import OksKeys, OmksKeys
from daemon.config.learners.omks_maps import OmksMapsKeys
from daemon.config.learners.soml import SomlDaKeys, SomlTgKeys
from daemon.config.section import Section

DEFAULT = "oasis"

LEARNERS: Mapping[str, type[LearnerConfig]] = {
    "oasis": OasisKeys,
    "oasis-averaged": AveragedKeys,
    "dissim-oasis": DissimKeys,
    "lego": LegoKeys,
    "soml-tg": SomlTgKeys,
    "soml-da": SomlDaKeys,
    "omks-maps": OmksMapsKeys,
    "oks": OksKeys,
    "omks": OmksKeys,
}
"""Algorithm -> its keys."""


def keys_of(table: Any) -> type[LearnerConfig]:
    """The keys that a table [learner] is checked with: those of its algorithm, the default's without one."""
    named = table.get("algorithm", DEFAULT) if isinstance(table, Mapping) else DEFAULT
    return LEARNERS.get(named, LEARNERS[DEFAULT]) if isinstance(named, str) else LEARNERS[DEFAULT]


def owner(name: str) -> type[Section] | None:
    """The keys in which a key of [learner] stands first; None when no algorithm has it."""
    return next((keys for keys in LEARNERS.values() if name in keys.model_fields), None)


def owners(name: str) -> list[str]:
    """The algorithms that have a key."""
    return [algorithm for algorithm, keys in LEARNERS.items() if name in keys.model_fields]


def all_keys() -> list[str]:
    """Every key of every algorithm, each once, in order."""
    return list(dict.fromkeys(name for keys in LEARNERS.values() for name in keys.model_fields))
