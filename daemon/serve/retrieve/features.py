"""What a form that does not fold keeps of each item, made before it answers: scoring a pair is quick then."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daemon.serve.items.snapshot import IndexPart
from daemon.serve.retrieve.part import ReadyPart
from learners.block import Float32s
from learners.forms.quadratic import Pieces, ServedForm, featured

MOST_BYTES = 1 << 30
"""Of one part: larger parts are scored without."""
ROWS = 8
"""Items of one piece, some milliseconds."""


def features_of(
    form: ServedForm, part: IndexPart, before: Mapping[int, ReadyPart], pieces: Pieces
) -> Float32s | None:
    """The features of a part's items, float32 [n, F], those of a merged part gathered from its sources; None
    for a form that has none, and for a part that is too large. `pieces` changes no bit.
    """
    if not featured(form) or not len(part):
        return None
    width = form.features(part.vectors.slice(0, 1)).shape[1]
    if 4 * width * len(part) > MOST_BYTES:
        return None
    known = _gathered(part, before)
    if known is not None:
        return known
    made = np.empty((len(part), width), np.float32)
    for piece in pieces(-(-len(part) // ROWS)):
        rows = slice(piece.start * ROWS, min(piece.stop * ROWS, len(part)))
        made[rows] = form.features(part.vectors.slice(rows.start, rows.stop))
    return made


def _gathered(part: IndexPart, before: Mapping[int, ReadyPart]) -> Float32s | None:
    found = []
    for serial, rows in part.merged_from:
        ready = before.get(serial)
        if ready is None or ready.features is None:
            return None
        found.append(ready.features[rows])
    return np.concatenate(found) if found else None
