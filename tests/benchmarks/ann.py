"""Search over a graph beside exact search, through the product's own call, after a strong change of W.

Vectors are shaped like sentence embeddings: a sentence of Banking77 as all-MiniLM-L6-v2 embeds it (10,003,
384 dimensions, unit length), moved by .3 to 1 times the difference of two sentences of one random intent over
sqrt 2, and brought back to unit length. W is that of OASIS after 120,000 triplets of the real sentences, by
intent, served as it is: positive semi-definite, power 1.5, normalised. Questions are vectors of the same kind
that are no objects. The graph is made by the keeper of `serve`, in its process of low priority.
"""

from __future__ import annotations

import csv
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from daemon.replica.view import ModelId, View
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex, Sizes
from daemon.serve.items.snapshot import IndexSnapshot, PartRows
from daemon.serve.query import Query, QueryError
from daemon.serve.retrieve import GraphKeeper, GraphSearch, Searcher
from daemon.serve.retrieve.part import Norms
from learners import Block, DenseBlock, Oasis, ServingForm
from learners.maps.queries import QueryMaps
from learners.search import DenseItems
from streams.ids import Packed
from tests.benchmarks.harness import Figure
from tests.quality.bench.minilm import Sentences
from tests.quality.bench.sets import CACHE, TEXTS

QUICK, MANY = 100_000, 1_000_000
QUERIES, K, LEAST, TRIPLETS, SEED, ROUNDS = 300, 10, 0.97, 120_000, 0, 5

Floats = NDArray[np.float32]


class LikeSentences:
    """Draws vectors of that shape, and triplets of the real ones."""

    def __init__(self) -> None:
        with TEXTS.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        kept = CACHE / "banking77-minilm.npy"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.save(kept, Sentences(CACHE / "minilm").encode([row["text"] for row in rows]))
        self.real = np.asarray(np.load(kept), np.float32)
        intents = np.array([row["category"] for row in rows])
        self._order = np.argsort(intents, kind="stable")
        self._starts = np.searchsorted(intents[self._order], np.unique(intents))
        self._ends = np.append(self._starts[1:], len(rows))
        self._rng = np.random.default_rng(SEED)

    def _of(self, intents: NDArray[np.int64]) -> Floats:
        sizes = (self._ends - self._starts)[intents]
        places = self._starts[intents] + (self._rng.random(len(intents)) * sizes).astype(np.int64)
        return np.asarray(self.real[self._order[places]])

    def draw(self, count: int) -> Floats:
        """Float32 [count, 384], of unit length."""
        intents = self._rng.integers(0, len(self._starts), count)
        moved = self._of(intents) - self._of(intents)
        moved *= self._rng.uniform(0.3, 1, (count, 1)).astype(np.float32) / np.float32(np.sqrt(2))
        moved += self.real[self._rng.integers(0, len(self.real), count)]
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        return moved

    def learned(self) -> Floats:
        """W after TRIPLETS of them."""
        learner = Oasis(self.real.shape[1])
        for _ in range(TRIPLETS // 2_000):
            intents = self._rng.integers(0, len(self._starts), 2_000)
            others = self.real[self._rng.integers(0, len(self.real), 2_000)]
            learner.learn_many(self._of(intents), self._of(intents), others)
        return np.array(learner.W)


def figures(objects: int = QUICK) -> list[Figure]:
    """Questions a second and recall, before and after learning; what the graph takes."""
    made = LikeSentences()
    values, asked, W = np.empty((objects, 384), np.float32), made.draw(QUERIES), made.learned()
    for first in range(0, objects, 50_000):
        values[first : first + 50_000] = made.draw(min(50_000, objects - first))
    index = _index(values)
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory() as folder:
        keeper = GraphKeeper([Path(folder)], lambda: index.snapshot, 20_000)
        began, before = time.monotonic(), _seconds()
        while not keeper.status().graphs:
            keeper.look()
        detail = {"build_minutes_of_a_core": round((_seconds() - before) / 60, 2)}
        detail["build_minutes"] = round((time.monotonic() - began) / 60, 2)
        searcher = _searcher(index, keeper)
        for name, one in (("own", np.eye(384, dtype=np.float32)), ("learned", W)):
            detail |= {f"{name}_{what}": value for what, value in _measured(searcher, one, asked).items()}
            if name == "learned":
                symmetric = ServingForm.from_matrix(one).matrix
                assert symmetric is not None
                eigenvalues = np.linalg.eigvalsh(symmetric)
                detail["learned_eigenvalue_least"] = round(float(eigenvalues[0]), 6)
                detail["learned_eigenvalue_most"] = round(float(eigenvalues[-1]), 2)
        view = _view(W)
        detail["memory_vs_vectors"] = round(
            _bytes(index.snapshot, searcher.prepare(view), keeper) / values.nbytes, 3
        )
    shape = f"{objects:,} objects like sentence embeddings, 384 dimensions"
    what = f"{shape}, k = {K}, one thread, one question at a time"
    ratio = round(detail["learned_graph_per_second"] / detail["learned_exact_per_second"], 2)
    name = f"ann_{objects // 1000}k" if objects < MANY else f"ann_{objects // MANY}m"
    return [
        Figure(f"{name}_vs_exact", ratio, "ratio", f"exact search; {what}, after learning", ROUNDS, detail),
        Figure(f"{name}_per_second", detail["learned_graph_per_second"], "questions/s", what, ROUNDS, detail),
        Figure(f"{name}_recall", detail["learned_recall"], "share", f"the exact {K}; {what}", 1, detail),
    ]


def _index(values: Floats) -> ItemIndex:
    index, step = ItemIndex("map", DisplayFile()), Sizes().part // (4 * values.shape[1])

    def parts() -> list[PartRows]:
        found = []
        for first in range(0, len(values), step):
            rows = values[first : first + step]
            ids = Packed.of_texts(str(first + row) for row in range(len(rows)))
            found.append(PartRows(ids, DenseBlock(rows), [()] * len(rows), Packed.of([b""] * len(rows))))
        return found

    index.load(parts())
    return index


def _searcher(index: ItemIndex, keeper: GraphKeeper) -> Searcher:
    def lookup(queries: list[Query], snapshot: IndexSnapshot, maps: QueryMaps) -> list[Block | QueryError]:
        return [DenseBlock(query.x) for query in queries]

    return Searcher({}, lambda: index.snapshot, lookup, GraphSearch(keeper.covered, LEAST))  # type: ignore[arg-type]


def _view(W: Floats) -> View:
    return View(ModelId(1), "map", ServingForm.from_matrix(W), hash(W.tobytes()))


def _measured(searcher: Searcher, W: Floats, asked: Floats) -> dict[str, float]:
    """Medians over rounds in turn; alone and 16 at a time."""
    view = _view(W)
    norms = searcher.prepare(view)
    near = replace(view, prepared=norms)
    exact = replace(view, prepared=replace(norms, graphs=replace(norms.graphs, width=None)))
    questions = [Query(x=row[None], k=K) for row in asked]
    found = {"width": float(norms.graphs.width or 0), "guarded_recall": round(norms.graphs.recall, 4)}
    hits = [_ids(searcher, one, questions) for one in (near, exact)]
    found["recall"] = round(
        float(np.mean([len(set(some) & set(all_)) / K for some, all_ in zip(*hits, strict=True)])), 4
    )
    few = questions[:: max(1, len(asked) // 100)]
    for name, size in (("", 1), ("_by_16", 16)):
        rates: dict[str, list[float]] = {"graph": [], "exact": []}
        for _ in range(ROUNDS):
            rates["graph"].append(
                _rate(lambda at: searcher.search_view(near, questions[at : at + size]), len(questions), size)
            )
            rates["exact"].append(
                _rate(lambda at: searcher.search_view(exact, few[at : at + size]), len(few), size)
            )
        for kind, each in rates.items():
            found[f"{kind}_per_second{name}"] = round(statistics.median(each), 1)
    return found


def _ids(searcher: Searcher, view: View, questions: list[Query]) -> list[list[str]]:
    results = [
        searcher.search_view(view, questions[at : at + 16]).results for at in range(0, len(questions), 16)
    ]
    return [[hit.id for hit in one] for some in results for one in some if not isinstance(one, QueryError)]


def _rate(search: Callable[[int], object], count: int, size: int) -> float:
    began = time.perf_counter()
    for first in range(0, count, size):
        search(first)
    return count / (time.perf_counter() - began)


def _bytes(snapshot: IndexSnapshot, norms: Norms, keeper: GraphKeeper) -> int:
    """Vectors, codes and bounds, terms, graphs and what finds objects in them; mapped files included, and
    what two of these share once."""
    arrays: dict[int, int] = {}
    for part in snapshot.parts:
        items, ready = norms.parts[part.serial].indexed.items, norms.parts[part.serial]
        assert isinstance(items, DenseItems)
        for array in (items.values, items.codes, items.bounds, ready.terms):
            if array is not None:
                arrays[array.__array_interface__["data"][0]] = array.nbytes
    covered, total = norms.graphs.covered, 0
    for one, terms, places in zip(covered.graphs, norms.graphs.terms, covered.places, strict=True):
        total += one.order.nbytes + one.ordered.nbytes + places.nbytes + terms.nbytes + one.graph.nbytes
        shared = [serial for serial, (number, _) in covered.whole.items() if covered.graphs[number] is one]
        for serial in shared:
            items = norms.parts[serial].indexed.items
            assert isinstance(items, DenseItems)
            total -= items.codes.nbytes + items.bounds.nbytes
    return total + sum(arrays.values())


def _seconds() -> float:
    """Processor time of this process and of those it has waited for."""
    used = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in used)
