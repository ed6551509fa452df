"""The index as readers see it: parts of rows that never change, their tags, a snapshot of all parts; and from
what a query names (an id, or vectors as JSON gives them) to a row in the learner's space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items.display import DisplayFile
from daemon.serve.query import Query, QueryError
from learners.block import Block, DenseBlock, SparseBlock
from learners.maps import FittedSpaceMap
from learners.maps.queries import QueryMaps
from streams import poison
from streams.event import UNNAMED_VIEW, SpaceSpec, ViewSpec
from streams.ids import IdColumn, Packed, hash_ids
from streams.items import Display, unpack_display
from streams.limits import MAX_MAGNITUDE
from streams.poison import Poison
from streams.queries import map_for


class TagColumn:
    """Which of n rows bear which tags. Tags are known by 64 bits of hash; 12 bytes per tag of a row.

    hashes: uint64 [k], ascending; rows: int32 [k], the row that bears it.
    """

    def __init__(self, length: int, hashes: NDArray[np.uint64], rows: NDArray[np.int32]) -> None:
        order = np.argsort(hashes, kind="stable")
        self._length = length
        self._hashes, self._rows = hashes[order], rows[order]

    @classmethod
    def of(cls, tags: Sequence[Sequence[str]]) -> TagColumn:
        """Row i bears `tags[i]`."""
        rows = np.repeat(np.arange(len(tags), dtype=np.int32), [len(one) for one in tags])
        return cls(len(tags), hash_ids([tag for one in tags for tag in one]), rows)

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._hashes.nbytes + self._rows.nbytes

    def bearing(self, tags: Sequence[str]) -> NDArray[np.bool_]:
        """bool [n]: the rows that bear every one of these tags; no tags, all rows."""
        mask = np.ones(self._length, np.bool_)
        try:
            wanted = hash_ids(tags)
        except UnicodeEncodeError:  # half a character, which no tag holds
            return ~mask
        for value in wanted:
            first = np.searchsorted(self._hashes, value, "left")
            last = np.searchsorted(self._hashes, value, "right")
            one = np.zeros(self._length, np.bool_)
            one[self._rows[first:last]] = True
            mask &= one
            if not mask.any():  # thousands of tags may be asked for, and no row bears so many
                break
        return mask

    def moved(self, places: NDArray[np.int32]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """(hashes, rows) with row i now at `places[i]`; those at -1 are left out."""
        to = places[self._rows]
        kept = to >= 0
        return self._hashes[kept], to[kept]


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
    def living(self) -> NDArray[np.bool_]:
        """Which rows are alive, bool [n]."""
        return np.ones(len(self), np.bool_) if self.alive is None else self.alive

    @property
    def nbytes(self) -> int:
        """Memory held, the mask of the living included."""
        origins = sum(rows.nbytes for _, rows in self.merged_from)
        mask = 0 if self.alive is None else self.alive.nbytes
        own = self.ids.nbytes + self.tags.nbytes + self.texts.nbytes
        pointers = self.vectors.indptr.nbytes if isinstance(self.vectors, SparseBlock) else 0
        return self.vectors.nbytes + pointers + own + origins + mask


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
        return self.rows_of(Packed.of([one.encode("utf-8", "surrogatepass") for one in ids]))

    def rows_of(self, wanted: Packed) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The same of ids in UTF-8."""
        parts, found = np.full(len(wanted), -1, np.int32), np.full(len(wanted), -1, np.int64)
        for number, part in enumerate(self.parts):
            rows = part.ids.rows_of(wanted)
            here = rows >= 0
            if part.alive is not None:
                here &= part.alive[rows]  # row -1 is masked already
            parts[here], found[here] = number, rows[here]
        return parts, found

    def without_removed(self, newest: IndexSnapshot) -> IndexSnapshot:
        """This older snapshot less the objects that the newest does not have; what was put again stays."""
        now = {part.serial: part.living for part in newest.parts}
        parts = []
        for part in self.parts:
            died = part.ids.packed.take(np.flatnonzero(part.living & ~now.get(part.serial, np.False_)))
            parts.append(without(part, died.take(np.flatnonzero(newest.rows_of(died)[1] < 0))))
        return replace(self, parts=tuple(parts))

    def tagged(self, tags: Sequence[str]) -> list[NDArray[np.bool_]]:
        """Per part, bool [rows of the part]: which objects bear every one of these tags. The dead count."""
        return [part.tags.bearing(tags) for part in self.parts]

    def id_at(self, part: int, row: int) -> str:
        """The id of a row of a part."""
        return self.parts[part].ids[row]

    def ids_at(self, parts: Sequence[int], rows: Sequence[int]) -> list[str]:
        """The ids of rows of parts, in this order."""
        if len(set(parts)) == 1:
            return self.parts[parts[0]].ids.texts_of(rows)
        return [self.id_at(part, row) for part, row in zip(parts, rows, strict=True)]

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


@dataclass(frozen=True, slots=True)
class PartRows:
    """Objects ready for a part, one per row: different ids, mapped vectors, tags, packed display data."""

    ids: Packed
    vectors: Block
    tags: Sequence[Sequence[str]]
    texts: Packed


@dataclass(frozen=True, slots=True)
class Changes:
    """`touched` ids (put or removed, each once) lose their object; `rows`: the new ones, None without any."""

    touched: Packed
    rows: PartRows | None


def make_part(serial: int, rows: PartRows) -> IndexPart:
    """A part of these objects, all alive."""
    vectors = rows.vectors
    if isinstance(vectors, SparseBlock) and (vectors.indptr[0] or vectors.indptr[-1] < len(vectors.indices)):
        vectors = vectors.take(np.arange(len(vectors)))  # rows of their own, not a slice of larger arrays
    return IndexPart(serial, IdColumn(rows.ids), vectors, None, 0, TagColumn.of(rows.tags), rows.texts)


def without(part: IndexPart, ids: Packed) -> IndexPart:
    """The part with these objects dead: the same one where none of them lived there."""
    rows = part.ids.rows_of(ids)
    rows = rows[rows >= 0]
    if part.alive is not None:
        rows = rows[part.alive[rows]]
    if not len(rows):
        return part
    alive = part.living.copy()
    alive[rows] = False
    return replace(part, alive=alive, dead=part.dead + len(rows))


_NOT_FOUND = 404


def resolve(
    queries: Sequence[Query],
    snapshot: IndexSnapshot,
    maps: QueryMaps,
    *,
    space: SpaceSpec,
    fitted: FittedSpaceMap,
) -> list[Block | QueryError]:
    """Per query a block of one row, its vector under the map of the snapshot, or a `QueryError` of its own.

    A query by id takes the catalog's vector of that object: 404 `unknown_object` where no living object has
    it. One by features is checked against the space and mapped, through one of `maps` where it is of another
    model: 422 with a reason of `streams.poison` as code, and the field, such as `views.text.indices`.
    """
    parts, places = snapshot.find_many([query.id or "" for query in queries])
    found: list[Block | QueryError] = []
    for query, part, place in zip(queries, parts, places, strict=True):
        try:
            if query.id is not None:
                if place < 0:
                    remedy = "use the id of an object of the catalog, or send its features as x or views"
                    problem = "no such object in the catalog"
                    raise QueryError(poison.UNKNOWN_OBJECT, problem, "id", remedy, _NOT_FOUND)
                found.append(snapshot.parts[part].vectors.take([int(place)]))
            else:
                found.append(_of_features(query, space, maps, fitted))
        except QueryError as refused:
            found.append(refused)
    return found


def _of_features(query: Query, space: SpaceSpec, maps: QueryMaps, fitted: FittedSpaceMap) -> Block:
    given, prefix = _views(_in_this_space(query, space, maps) if maps else query, space)
    block = fitted.transform(
        {view.name: _block(given[view.name], view, prefix + view.name) for view in space.views}
    )
    if not np.isfinite(block.values).all():
        raise _refused(poison.MAGNITUDE, "too large for the space's map", prefix.rstrip(".") or UNNAMED_VIEW)
    return block


def _in_this_space(query: Query, space: SpaceSpec, maps: QueryMaps) -> Query:
    own = {view.name: view.dim for view in space.views}
    if query.views is not None:
        given, prefix = query.views, "views."
    elif query.only is not None:
        given, prefix = dict.fromkeys([*own][: len(own) == 1], query.only), ""
    else:
        given, prefix = {UNNAMED_VIEW: query.x}, ""
    found: dict[str, Any] = {}
    mapped = False
    for name, raw in given.items():
        field, known = prefix + name if prefix else UNNAMED_VIEW, None
        if isinstance(raw, list | np.ndarray):
            try:
                known = map_for(name, len(raw), own.get(name), maps)
            except Poison as error:
                raise _refused(error.reason, error.detail, field) from None
        view, vector = name, raw
        if known is not None:
            one = maps[known]
            values = _block(raw, ViewSpec(known, "dense", one.dim), field)
            assert isinstance(values, DenseBlock)
            view, vector, mapped = one.view, one.given(values.values[0]), True
        if view in found:
            raise _refused(poison.WRONG_VIEW, f"gives view {view} by two models", field)
        found[view] = vector
    return replace(query, x=None, only=None, views=found) if mapped else query


def _views(query: Query, space: SpaceSpec) -> tuple[Mapping[str, Any], str]:
    names = [view.name for view in space.views]
    if query.only is not None:
        if len(names) > 1:
            raise _refused(poison.WRONG_VIEW, f"one vector, and the space has {_listed(names)}", "")
        return {names[0]: query.only}, ""
    if query.views is None:
        if names != [UNNAMED_VIEW]:
            raise _refused(poison.WRONG_VIEW, f"the space has {_listed(names)}; send them in views", "x")
        return {UNNAMED_VIEW: query.x}, ""
    for name in names:
        if name not in query.views:
            problem = f"lacks this view; the space has {_listed(names)}"
            raise _refused(poison.WRONG_VIEW, problem, f"views.{name}")
    if len(query.views) > len(names):
        raise _refused(poison.WRONG_VIEW, f"a view too many; the space has {_listed(names)}", "views")
    return query.views, "views."


def _listed(names: Sequence[str]) -> str:
    return f"the view{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _block(raw: Any, view: ViewSpec, field: str) -> Block:
    """One vector as a block of one row; raises QueryError unless it is a vector of this view."""
    if isinstance(raw, Mapping) != (view.kind == "sparse"):
        wanted = 'sparse: send {"indices": [...], "values": [...]}' if view.kind == "sparse" else "a list"
        raise _refused(poison.WRONG_KIND, f"this view's vectors are {wanted}", field)
    if view.kind == "dense":
        values = _numbers(raw, field)
        if len(values) != view.dim:
            raise _refused(poison.WRONG_DIM, f"has {len(values)} numbers, the view {view.dim}", field)
        return DenseBlock(values[None, :])
    if raw.keys() != {"indices", "values"}:
        raise _refused(poison.BAD_VECTOR, "a sparse vector has indices and values, and nothing else", field)
    indices = _indices(raw["indices"], view, f"{field}.indices")
    values = _numbers(raw["values"], f"{field}.values")
    if len(indices) != len(values):
        raise _refused(poison.BAD_VECTOR, f"{len(indices)} indices for {len(values)} values", field)
    return SparseBlock(np.array([0, len(indices)], np.int64), indices, values, view.dim)


def _numbers(raw: Any, field: str) -> NDArray[np.float32]:
    if not isinstance(raw, np.ndarray) and not (
        isinstance(raw, list) and {int, float}.issuperset(map(type, raw))
    ):
        raise _refused(poison.WRONG_TYPE, "is not a list of numbers", field)
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(raw, np.float64).astype(np.float32)
    except OverflowError:
        raise _refused(poison.MAGNITUDE, "holds a number that is too large", field) from None
    largest = np.abs(values).max(initial=0.0)  # NaN where any value is NaN
    if not largest <= MAX_MAGNITUDE:
        if np.isnan(largest):
            raise _refused(poison.NOT_FINITE, "holds a number that is not finite", field)
        raise _refused(poison.MAGNITUDE, f"holds a number above {MAX_MAGNITUDE:g} in size", field)
    return values


def _indices(raw: Any, view: ViewSpec, field: str) -> NDArray[np.int32]:
    if not isinstance(raw, list) or not {int}.issuperset(map(type, raw)):
        raise _refused(poison.WRONG_TYPE, "is not a list of whole numbers", field)
    if raw and not 0 <= min(raw) <= max(raw) < view.dim:
        raise _refused(poison.INDEX_OUT_OF_RANGE, f"an index is not within 0..{view.dim - 1}", field)
    indices = np.array(raw, np.int32)
    if np.any(indices[1:] <= indices[:-1]):
        raise _refused(poison.INDICES_NOT_INCREASING, "are not strictly increasing", field)
    return indices


def _refused(reason: str, message: str, field: str) -> QueryError:
    return QueryError(reason, message, field, "send the vector as the space's view has it")
