"""What models of keys begin from: the learned matrix of a version of another folder, with the maps it was
learned on. Read once, for version 0, which holds both from then on; its schedule names what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog

from checkpoints.store import CheckpointError
from daemon.config.schema import Config
from daemon.exits import EX_CONFIG, EX_DATAERR, UserError
from daemon.learn.compatible import learner_settings
from daemon.look.overview import read_entries
from daemon.models.decide import number_of
from daemon.versions.algorithms import algorithm_of, keys_of, map_of
from daemon.versions.forms import MatrixForms
from daemon.versions.restore import learner_of
from daemon.versions.storage import open_existing
from learners.block import Float32s
from learners.maps import FittedSpaceMap

log = structlog.get_logger("tripletd.learn")

SAME = ("views", "similarity")
"""Settings by which vectors are the same in both folders."""


@dataclass(frozen=True, slots=True)
class SharedStart:
    """matrix: float32 [d, d]. entry: the control entry that says where it is from."""

    fitted: FittedSpaceMap
    matrix: Float32s
    entry: dict[str, Any]


def shared_start(config: Config) -> SharedStart | None:
    """What keys.start names; None where it names nothing. Raises UserError for a version that is not there,
    cannot be read, has no one matrix, or was learned in another space."""
    named = config.keys.start
    if not named or not config.keys.slots:
        return None
    folder, _, name = named.rpartition(":")
    if not folder or not name:
        raise UserError(
            f"keys.start: {named!r} names no version of a folder",
            "write FOLDER:VERSION, with a number or a name such as best",
            EX_CONFIG,
        )
    stored = open_existing(folder, " of checkpoints", "name it as FOLDER:VERSION in keys.start")
    try:
        number = number_of(name, stored.versions.versions(), read_entries(stored.ledger)[0])
        version = stored.versions.load(number)
    except CheckpointError as error:
        raise UserError(f"keys.start: {named} cannot be loaded: {error}", error.remedy, EX_DATAERR) from error
    manifest = version.manifest
    _require_same_space(named, manifest.space, manifest.learner.get("config", {}), config)
    kind = algorithm_of(manifest.learner["name"]).forms
    if keys_of(manifest).slots or not isinstance(kind, MatrixForms) or kind.distance:
        raise UserError(
            f"keys.start: {named} was learned by {manifest.learner['name']}"
            f"{' with keys' if keys_of(manifest).slots else ''}, which has no one matrix to begin from",
            "name a version of oasis, oasis-averaged or oasis-softmax that was learned without keys",
            EX_CONFIG,
        )
    fitted = map_of(version)
    learner: Any = learner_of(version, fitted)
    log.info("all keys begin from what was learned before", version=named, name=manifest.name)
    whence = {"version": named, "name": manifest.name, "state_hash": manifest.state_hash}
    return SharedStart(fitted, np.array(learner.W, np.float32), {"control": "start", "of": whence})


def _require_same_space(named: str, space: str, recorded: Mapping[str, Any], config: Config) -> None:
    own = learner_settings(config)
    differing = [name for name in SAME if recorded.get(name) != own.get(name)]
    if space != config.space.id:
        differing.insert(0, "space.id")
    if differing:
        raise UserError(
            f"keys.start: {named} was learned in another space: {', '.join(differing)} differ",
            "describe the space as its folder's configuration does, or name a version of this space",
            EX_CONFIG,
        )
