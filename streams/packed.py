"""Many short texts or byte strings in one buffer: no Python object per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """n byte strings: row i is `data[bounds[i]:bounds[i + 1]]`.

    data: uint8 [bytes]; bounds: int64 [n + 1], ascending from 0 to len(data).
    """

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[bytes]) -> Packed:
        """These byte strings, copied into one buffer."""
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=bounds[1:])
        return cls(np.frombuffer(b"".join(rows), np.uint8), bounds)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Packed:
        """These texts in UTF-8."""
        return cls.of([text.encode() for text in texts])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, row: int) -> bytes:
        """Row `row`, copied; IndexError outside 0 .. n - 1."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.data[self.bounds[row] : self.bounds[row + 1]].tobytes()

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.data.nbytes + self.bounds.nbytes

    def take(self, rows: npt.NDArray[np.integer]) -> Packed:
        """The rows named by an integer array within range, in its order, copied."""
        starts = self.bounds[rows]
        lengths = self.bounds[rows + 1] - starts
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        places = np.repeat(starts - bounds[:-1], lengths)
        places += np.arange(bounds[-1])
        return Packed(self.data[places], bounds)


def join(pieces: Sequence[Packed]) -> Packed:
    """All rows of the pieces, one piece below the other, copied; no pieces, no rows."""
    if not pieces:
        return Packed.of(())
    ends = np.cumsum([0, *(len(piece.data) for piece in pieces)])
    bounds = [piece.bounds[1:] + end for piece, end in zip(pieces, ends, strict=False)]
    return Packed(np.concatenate([p.data for p in pieces]), np.concatenate([[0], *bounds]).astype(np.int64))
