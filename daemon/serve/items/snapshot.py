"""What is searched: an index snapshot of immutable parts, read by any thread without a lock.

Every id is alive in at most one part. A part's serial names its ids, vectors, tags and texts: what a reader
computed from them (norms) stays valid as long as the serial does, whatever dies meanwhile. Removing or
replacing an object copies the mask of the living and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items.display import DisplayFile
from daemon.serve.items.tags import TagColumn
from learners.block import Block, DenseBlock
from streams.ids import IdColumn, Packed
from streams.items import Display, unpack_display


@dataclass(frozen=True, slots=True, eq=False)
class IndexPart:
    """n objects, row by row.

    serial: unique in this process, names the content. ids: their texts. vectors: mapped features, n rows.
    alive: bool [n], False where an object was replaced or removed since; None: all live. dead: how many do
    not. tags: of each row. texts: what is shown to people, packed. merged_from: where the rows of a merged
    part come from: (serial of the source part, int32 rows taken from it in order), one source after the
    other, so that what was computed per row can be gathered instead of computed again; empty for a part made
    of new objects.
    """

    serial: int
    ids: IdColumn
    vectors: Block
    alive: NDArray[np.bool_] | None
    dead: int
    tags: TagColumn
    texts: Packed
    merged_from: tuple[tuple[int, NDArray[np.int32]], ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Memory held, the mask of the living included."""
        vectors = self.vectors
        arrays = (
            (vectors.values,)
            if isinstance(vectors, DenseBlock)
            else (vectors.indptr, vectors.indices, vectors.values)
        )
        origins = sum(rows.nbytes for _, rows in self.merged_from)
        mask = 0 if self.alive is None else self.alive.nbytes
        own = self.ids.nbytes + self.tags.nbytes + self.texts.nbytes
        return sum(array.nbytes for array in arrays) + own + origins + mask


@dataclass(frozen=True, slots=True, eq=False)
class IndexSnapshot:
    """The whole serving catalog at one moment.

    serial: grows with every snapshot. map_id: of the frozen map that made the vectors. `len` counts the
    living.
    """

    serial: int
    map_id: str
    parts: tuple[IndexPart, ...]
    shown: DisplayFile

    def __len__(self) -> int:
        return sum(len(part) - part.dead for part in self.parts)

    def find(self, object_id: str) -> tuple[int, int] | None:
        """(part, row) of a living object, or None."""
        parts, rows = self.find_many([object_id])
        return None if rows[0] < 0 else (int(parts[0]), int(rows[0]))

    def find_many(self, ids: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Per id its part, int32 [n], and its row there, int64 [n]; both -1 where no living object has it."""
        wanted = Packed.of([one.encode("utf-8", "surrogatepass") for one in ids])
        parts, found = np.full(len(wanted), -1, np.int32), np.full(len(wanted), -1, np.int64)
        for number, part in enumerate(self.parts):
            rows = part.ids.rows_of(wanted)
            here = rows >= 0
            if part.alive is not None:
                here &= part.alive[rows]  # row -1 is masked already
            parts[here], found[here] = number, rows[here]
        return parts, found

    def tagged(self, tags: Sequence[str]) -> list[NDArray[np.bool_]]:
        """Per part, bool [rows of the part]: which objects bear every one of these tags. The dead count."""
        return [part.tags.bearing(tags) for part in self.parts]

    def id_at(self, part: int, row: int) -> str:
        """The id of a row of a part."""
        return self.parts[part].ids[row]

    def display(self, object_id: str) -> Display | None:
        """What people see of a living object: what its record brought, else the display file's entry.

        None for an object that is not in the catalog; an empty `Display` where nothing is known of it.
        """
        found = self.find(object_id)
        return None if found is None else self.display_at(*found)

    def display_at(self, part: int, row: int) -> Display:
        """The same of a row of a part."""
        packed = self.parts[part].texts[row]
        return unpack_display(packed) if packed else self.shown.of(self.id_at(part, row)) or Display()
