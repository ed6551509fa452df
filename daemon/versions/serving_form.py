"""The form in which a version is judged and served: made once per version, kept beside it, read back after.

It is computed off the learner, so that checkpoints stay small and the learner's memory flat. It is stored
as the derived file `serving` of its version, with the settings it was made with; other settings make it
anew in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints.errors import CheckpointError, KeyExists
from checkpoints.versions import Version, VersionStore
from daemon.config.model import ServingConfig
from daemon.exits import UserError
from learners.block import Float32s
from learners.errors import StateError
from learners.psd import MAX_FULL_DIM
from learners.serving import ServingForm

DERIVED = "serving"

log = structlog.get_logger("tripletd.serving_form")


def serving_form(
    versions: VersionStore, version: Version, config: ServingConfig, keep: bool = True
) -> ServingForm:
    """The serving form of a loaded version: read when it was made with these settings, else made and, unless
    `keep` is false, kept.

    Raises StateError for a W that is missing or not finite, UserError for settings its dimension does not
    allow. A form that cannot be read or written (damage, full disk) is made in memory and the trouble is
    logged.
    """
    W = _checked(version.arrays)
    number, digest = version.manifest.number, settings_digest(config)
    try:
        kept = versions.attached(number, DERIVED)
    except CheckpointError as error:
        log.warning("serving form cannot be read; made anew", version=number, error=str(error))
        return make_form(W, number, config)
    if kept is not None:
        arrays, meta = kept
        if meta.get("settings_digest") == digest:
            return ServingForm.from_arrays(arrays, W)
    form = make_form(W, number, config)
    if kept is None and keep:
        settings = {"settings": config.model_dump(), "settings_digest": digest}
        _keep(versions, number, form, settings | {"made": account(form)})
    return form


def make_form(W: Float32s, number: int, config: ServingConfig) -> ServingForm:
    """The serving form of W, by `psd`: `full`, `lanczos`, `auto` (full up to `full_max_dim`) or `off`.

    Version 0 is untrained, W = I: its form is W itself. `power` applies where it has a meaning, to the
    normalised score with all eigenvalues at hand; score "raw", psd "off" and psd "lanczos" (also where `auto`
    falls back to it) have power 1, so that each key can be changed alone. Raises UserError when `full` is
    asked above MAX_FULL_DIM.
    """
    dim, normalised = W.shape[0], config.score == "normalised"
    if number == 0 or config.psd == "off" or dim == 1:
        return ServingForm(None, np.zeros((dim, 0), np.float32), np.zeros(0, np.float32), normalised, W)
    if config.psd == "full" and dim > MAX_FULL_DIM:
        raise UserError(
            f"serving.psd: a full eigendecomposition of {dim} dimensions takes too long "
            f"(at most {MAX_FULL_DIM})",
            'set serving.psd to "auto" or "lanczos"',
        )
    full_up_to = dim if has_matrix(config, dim) else 0
    pairs = min(config.lanczos_pairs, dim - 1)
    return ServingForm.from_matrix(W, normalised, full_up_to, pairs, config.power)


def has_matrix(config: ServingConfig, dim: int) -> bool:
    """Whether the form of a trained W of this dimension is a second matrix: by a full decomposition."""
    return dim > 1 and (config.psd == "full" or (config.psd == "auto" and dim <= config.full_max_dim))


def power_of(config: ServingConfig) -> float:
    """What the eigenvalues of a full decomposition are raised to."""
    return config.power if config.score == "normalised" else 1.0


def account(form: ServingForm) -> dict[str, Any]:
    """How a form was made, for people: psd {full, lanczos, off}, the power that applied, and what was removed
    ({negatives, share of the spectrum's absolute sum, null where unknown}).
    """
    removed = form.removed
    if removed is None:
        return {"psd": "off", "power": 1.0, "negatives": 0, "share": None}
    psd = "lanczos" if form.matrix is None else "full"
    return {"psd": psd, "power": form.power, "negatives": removed.negatives, "share": removed.share}


def settings_digest(config: ServingConfig) -> str:
    """sha256 over the settings the form depends on."""
    return hashlib.sha256(json.dumps(config.model_dump(), sort_keys=True).encode()).hexdigest()


def _checked(arrays: Mapping[str, NDArray[Any]]) -> Float32s:
    W = arrays.get("W")
    if W is None or W.ndim != 2 or W.shape[0] != W.shape[1] or W.dtype != np.float32:
        raise StateError("the version holds no square float32 matrix W")
    if not all(np.isfinite(row).all() for row in W):
        raise StateError("W holds values that are not finite")
    return W


def _keep(versions: VersionStore, number: int, form: ServingForm, meta: dict[str, Any]) -> None:
    try:
        versions.attach(number, DERIVED, form.arrays(), meta)
    except KeyExists:
        pass  # another validator made the same form of the same version
    except CheckpointError as error:
        log.warning("serving form not kept", version=number, error=str(error))
