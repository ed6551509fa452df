"""Catalogs and models that the tests of retrieval search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daemon.replica.view import ModelId, NotServing, View
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex
from daemon.serve.items.snapshot import Changes, IndexSnapshot, PartRows, resolve
from daemon.serve.query import Query, QueryError
from daemon.serve.retrieve import GraphSearch, Searcher
from learners import Block, ServingForm
from learners.forms.serving import BackoffForm
from learners.maps.queries import QueryMaps
from learners.search import SHORTLIST
from streams.event import SpaceSpec, ViewSpec
from streams.ids import Packed
from streams.items import Display, pack_display
from tests.daemon.serve.items.objects import identity
from tests.learners.examples import block, rows

Floats = NDArray[np.float32]
DIM = 24


def view_of(W: Floats, number: int = 1, map_id: str = "map", normalised: bool = True) -> View:
    """A version's view of this W."""
    return View(ModelId(number, 0, None, number), map_id, ServingForm.from_matrix(W, normalised), number)


def backing_off(W: Floats) -> BackoffForm:
    """A form of W that gives way for half of all queries or more."""
    return BackoffForm.beside(
        ServingForm.from_matrix(W), np.linspace(0.5, 2, len(W), dtype=np.float32), 0.5, 2.0
    )


def learned(seed: int, dim: int = DIM, strength: float = 0.5) -> Floats:
    """I with noise: a W that has learned something."""
    noise = np.random.default_rng(seed).standard_normal((dim, dim)).astype(np.float32)
    return np.eye(dim, dtype=np.float32) + np.float32(strength) * noise / np.sqrt(np.float32(dim))


class Items:
    """A catalog whose objects' vectors are remembered, to be compared with."""

    def __init__(self, kind: str, dim: int = DIM, map_id: str = "map") -> None:
        self.kind, self.dim = kind, dim
        self.index = ItemIndex(map_id, DisplayFile())
        self.vectors: dict[str, Floats] = {}
        self.tags: dict[str, tuple[str, ...]] = {}

    def put(self, names: Sequence[str], values: Floats, tags: Sequence[tuple[str, ...]] = ()) -> None:
        """Put these objects: one new part."""
        given = list(tags) or [()] * len(names)
        texts = Packed.of([pack_display(Display(tags=one)) for one in given])
        made = PartRows(Packed.of_texts(names), block(values, self.kind), given, texts)
        assert self.index.apply(Changes(Packed.of_texts(names), made))
        self.vectors.update(zip(names, values, strict=True))
        self.tags.update(zip(names, given, strict=True))

    def remove(self, names: Sequence[str]) -> None:
        """Remove these objects."""
        assert self.index.apply(Changes(Packed.of_texts(names), None))
        for name in names:
            del self.vectors[name]

    def snapshot(self) -> IndexSnapshot:
        """The newest one."""
        return self.index.snapshot

    def block(self) -> tuple[list[str], Block]:
        """Names and vectors of the living."""
        return list(self.vectors), block(np.array(list(self.vectors.values())), self.kind)


def several_parts(kind: str, seed: int = 0, dim: int = DIM) -> Items:
    """300 objects in four parts, some replaced and some removed; two equal vectors in different parts."""
    rng, items = np.random.default_rng(seed), Items(kind, dim)
    tags = [("red",) if i % 3 == 0 else ("blue", "big") if i % 3 == 1 else () for i in range(200)]
    items.put([f"a{i}" for i in range(200)], rows(rng, 200, dim), tags)
    items.put([f"b{i}" for i in range(100)], rows(rng, 100, dim), [("red", "big")] * 100)
    items.put(["twin", *(f"a{i}" for i in range(10, 20))], rows(rng, 11, dim))
    items.put(["twin2"], items.vectors["twin"][None])
    items.remove([f"a{i}" for i in range(50, 90)] + ["b7"])
    return items


@dataclass
class OneReplica:
    """Serves one view; counts nothing, follows nothing."""

    view: View | None = None

    @contextmanager
    def read(self) -> Iterator[View]:
        """The view, or NotServing."""
        if self.view is None:
            raise NotServing("no version yet")
        yield self.view


def searcher_of(
    items: Items, view: View | None = None, graphs: GraphSearch | None = None, shortlist: int = SHORTLIST
) -> tuple[Searcher, OneReplica]:
    """A searcher whose one replica serves the view, prepared."""
    space = SpaceSpec("shop", (ViewSpec("x", "dense" if items.kind == "dense" else "sparse", items.dim),))
    fitted = identity(space)

    def lookup(
        queries: Sequence[Query], snapshot: IndexSnapshot, maps: QueryMaps
    ) -> list[Block | QueryError]:
        return resolve(queries, snapshot, maps, space=space, fitted=fitted)

    replica = OneReplica()
    searcher = Searcher({"latest": replica}, items.snapshot, lookup, graphs, shortlist=shortlist)
    if view is not None:
        replica.view = replace(view, prepared=searcher.prepare(view))
    return searcher, replica
