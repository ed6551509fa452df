"""What a search answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from daemon.replica.model import ModelId

OWN = "own"


@dataclass(frozen=True, slots=True)
class Similar:
    """The most similar items, best first, equal scores by ascending row.

    rows: in the items given; ids: theirs, where they have some, else (). model: what the scores are from.
    formed: records since version 0 at which the form of the scores was computed; equal to `model.total`,
    except where steps are followed: from there the form is carried over (see `learners.forms.carried`).
    Norms are of the form at `formed` for `Items` that were there when it was made, and of the carried one
    for all others. Every item was looked at. by: "" without a key, `OWN` where the key's own model
    answered, else why version 0 did: "unknown_key" or "not_learned". Iterating gives (id, score), or (row,
    score) without ids.
    """

    rows: tuple[int, ...]
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    model: ModelId
    formed: int
    by: str = ""

    @property
    def version(self) -> str:
        """ "12" at version 12, "12+3400" that many events behind it."""
        return str(self.model)

    @property
    def watermark(self) -> int | None:
        """Newest event time learned by the model, ms since the epoch; None before any."""
        return self.model.watermark

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[str | int, float]]:
        return iter(zip(self.ids or self.rows, self.scores, strict=True))
