"""Whether a version is fit to be pointed at: whole, finite, and of the space of what is served now."""

from __future__ import annotations

import io
import math

import numpy as np

from checkpoints import Damaged, Manifest, VersionStore
from checkpoints.encoding import DTYPES
from checkpoints.store import folder
from daemon.exits import EX_DATAERR
from daemon.models.refusal import Refused
from daemon.versions.arrays import learner_specs

PIECE = 4 << 20


def verify(versions: VersionStore, number: int, served: int | None, field: str) -> None:
    """Read every byte of version `number` once, in pieces: hash, arrays, finite numbers; nothing is kept.

    served: the version whose servers will swap to it, None for the newest that can be read. Raises Refused.
    """
    try:
        manifest = versions.manifest(number)
        reference = _reference(versions, manifest, served)
        if reference is not None:
            _same_space(manifest, reference, field)
        versions.load(number, lambda spec: None)  # every byte hashed, nothing kept
        wrong = _first_not_finite(versions, manifest)
    except Damaged as error:
        told = f"version {number} does not load: {error.place}: {error.problem}"
        raise Refused("damaged", field, told, error.remedy, EX_DATAERR) from error
    if wrong is not None:
        raise Refused(
            "not_finite",
            field,
            f"version {number}: array {wrong} holds values that are not finite",
            "choose an older version; `tripletd replay --verify` finds the event that brought them in",
            EX_DATAERR,
        )


def _first_not_finite(versions: VersionStore, manifest: Manifest) -> str | None:
    """The first array with a NaN or infinite value, None when there is none; read in pieces, so that a server
    that is asked holds no second W. For a version whose hash was verified.
    """
    (entry,) = manifest.files
    with versions.store.open(folder(manifest.number) + entry.name) as stream:
        data = io.BufferedReader(stream, PIECE)  # type: ignore[type-var]
        data.seek(8 + int.from_bytes(data.read(8), "little"))
        for spec in manifest.arrays:  # in file order
            dtype = np.dtype(DTYPES[spec.dtype])
            left = math.prod(spec.shape) * dtype.itemsize
            while left:
                piece = data.read(min(left, PIECE))
                left -= len(piece)
                if not piece or (dtype.kind == "f" and not np.isfinite(np.frombuffer(piece, dtype)).all()):
                    return spec.name
    return None


def _reference(versions: VersionStore, manifest: Manifest, served: int | None) -> Manifest | None:
    if served is not None:
        try:
            return versions.manifest(served)
        except Damaged:
            pass  # what is served cannot tell; the newest does
    newest = versions.newest_manifest()
    return newest if newest is not None and newest.kind == "version" else manifest


def _same_space(manifest: Manifest, served: Manifest, field: str) -> None:
    """Raise Refused naming what differs: the items of whoever serves are mapped for the other one."""
    pairs = (
        ("space", manifest.space, served.space),
        ("map", manifest.map.get("id"), served.map.get("id")),
        ("learner", manifest.learner.get("name"), served.learner.get("name")),
        ("shape", _shapes(manifest), _shapes(served)),
    )
    for what, own, other in pairs:
        if own != other:
            raise Refused(
                "other_space",
                field,
                f"version {manifest.number} has another {what} than version {served.number}, "
                f"which is served: {own}, not {other}",
                "serve it from a checkpoint folder of its own: items and queries must be mapped anew for it",
                EX_DATAERR,
            )


def _shapes(manifest: Manifest) -> str:
    """What the learner's arrays hold: "W 12 x 12"; counters and the like are left out."""
    return ", ".join(
        f"{spec.name} {' x '.join(map(str, spec.shape))}" for spec in learner_specs(manifest) if spec.shape
    )
