"""The learners a configuration can name, made afresh, or from a version's settings and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from checkpoints.manifest import Manifest
from daemon.config.model import LearnerConfig
from learners.oasis import Oasis, OasisConfig
from learners.protocol import Learner

ADDED_LATER: Mapping[str, Any] = {"dedupe_window": 0}
"""Settings that versions of 0.1 do not have, and what they mean for those. Going on with another value is no
refusal but a control entry."""


def learner_config_of(manifest: Manifest) -> LearnerConfig:
    """The learner's settings as a version recorded them. Raises KeyError or ValueError for what is no such
    record.
    """
    recorded = {**ADDED_LATER, **manifest.learner["config"]}
    settings = {name: recorded[name] for name in LearnerConfig.model_fields if name != "algorithm"}
    return LearnerConfig(algorithm=manifest.learner["name"], **settings)


def untrained(config: LearnerConfig, dim: int) -> Learner:
    """The learner before any event: its similarity is the dot product of the mapped vectors."""
    return Oasis(dim, _oasis(config))


def restored(config: LearnerConfig, arrays: Mapping[str, npt.NDArray[Any]]) -> Learner:
    """The learner that goes on from a version's arrays, taking them over where it can. Raises StateError."""
    return Oasis.from_state(arrays, _oasis(config), copy=False)


def _oasis(config: LearnerConfig) -> OasisConfig:
    return OasisConfig(C=config.C, symmetric=config.symmetric, psd_every=config.psd_every)
