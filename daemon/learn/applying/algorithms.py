"""The learners a configuration can name, made afresh or from a version's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from daemon.config.model import LearnerConfig
from learners.oasis import Oasis, OasisConfig
from learners.protocol import Learner


def untrained(config: LearnerConfig, dim: int) -> Learner:
    """The learner before any event: its similarity is the dot product of the mapped vectors."""
    return Oasis(dim, _oasis(config))


def restored(config: LearnerConfig, arrays: Mapping[str, npt.NDArray[Any]]) -> Learner:
    """The learner that goes on from a version's arrays, taking them over where it can. Raises StateError."""
    return Oasis.from_state(arrays, _oasis(config), copy=False)


def _oasis(config: LearnerConfig) -> OasisConfig:
    return OasisConfig(C=config.C, symmetric=config.symmetric, psd_every=config.psd_every)
