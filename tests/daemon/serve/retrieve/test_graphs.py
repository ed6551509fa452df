"""Graphs are kept up with what is put and removed, found again after a restart, and never read half."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.serve.query import Query, QueryError
from daemon.serve.retrieve import graph_files as files
from daemon.serve.retrieve.coverage import GraphState, plan, states_of
from daemon.serve.retrieve.graphs import LOCK
from learners.graph import Graph, code_rows, hashes_of
from learners.search import DenseItems
from streams.durable import is_locked
from tests.daemon.serve.retrieve.graphed import COUNT, DIM, clustered, keeper_of, more, searcher_over
from tests.daemon.serve.retrieve.makers import Items, view_of

EYE = np.eye(DIM, dtype=np.float32)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph of `clustered()`."""
    root = tmp_path_factory.mktemp("graphs")
    keeper_of(clustered(), root)
    return root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "graphs"))


def found(items: Items, searcher: object, view: object, name: str, k: int = 10) -> list[str]:
    (result,) = searcher.search_view(view, [Query(id=name, k=k)]).results  # type: ignore[attr-defined]
    assert not isinstance(result, QueryError)
    return [hit.id for hit in result]


def test_objects_that_are_put_and_removed_count_at_once(root: Path) -> None:
    items = clustered()
    keeper = keeper_of(items, root)
    assert keeper.status().adopted == 1
    searcher = searcher_over(items, keeper, 0.8)
    view = view_of(EYE)
    prepared = replace(view, prepared=searcher.prepare(view))
    assert prepared.prepared.graphs.width is not None
    first = found(items, searcher, prepared, "a9")[0]
    items.remove([first])
    assert first not in found(items, searcher, prepared, "a9")
    items.put(["new"], items.vectors["a9"][None])
    prepared = replace(view, prepared=searcher.prepare(prepared))
    assert found(items, searcher, prepared, "a9")[0] == "new"
    assert prepared.prepared.graphs.width is not None, "nothing is measured again for a new object"
    items.remove([f"a{i}" for i in range(1000, COUNT) if f"a{i}" in items.vectors])
    assert set(found(items, searcher, prepared, "a9", 900)) <= set(items.vectors)
    assert len(found(items, searcher, prepared, "a9", 900)) == 900


def test_a_merge_of_parts_changes_no_graph(root: Path) -> None:
    items = clustered()
    keeper = keeper_of(items, root)
    items.put([f"b{i}" for i in range(300)], more(300, 5))
    items.remove([f"a{i}" for i in range(0, COUNT, 3)])
    searcher, view = searcher_over(items, keeper, 0.5), view_of(EYE)
    before = searcher.prepare(view)
    names = [f"a{i}" for i in range(1, 200, 9) if i % 3]
    exact = replace(view, prepared=replace(before, graphs=replace(before.graphs, width=None)))
    wanted = [set(found(items, searcher, exact, name)) for name in names]
    parts = [part.serial for part in items.snapshot().parts]
    for _ in range(1000):
        if not items.index.work():
            break
    assert [part.serial for part in items.snapshot().parts] != parts
    after = searcher.prepare(replace(view, prepared=before))
    assert [one.name for one in after.graphs.covered.graphs] == [
        one.name for one in before.graphs.covered.graphs
    ]
    assert after.graphs.width == before.graphs.width
    again = [set(found(items, searcher, replace(view, prepared=after), name)) for name in names]
    assert np.mean([len(some & every) / 10 for some, every in zip(again, wanted, strict=True)]) >= 0.9
    states, tail = states_of(keeper.covered(items.snapshot()), items.snapshot())
    assert (states[0].living, tail) == (COUNT - 2000, 300)


def test_a_graph_is_found_again_by_the_content_of_its_objects_in_any_order(root: Path) -> None:
    same = clustered()
    names = list(same.vectors)
    shuffled = Items("dense", DIM)
    for part in np.array_split(np.random.default_rng(1).permutation(COUNT), 3):
        shuffled.put([f"c{i}" for i in part], np.array([same.vectors[names[i]] for i in part]))
    keeper = keeper_of(shuffled, root)
    assert (keeper.status().adopted, keeper.status().built) == (1, 0)
    assert keeper.status().graphs[0].living == COUNT
    searcher, view = searcher_over(shuffled, keeper, 0.8), view_of(EYE)
    norms = searcher.prepare(view)
    exact = replace(view, prepared=replace(norms, graphs=replace(norms.graphs, width=None)))
    some, every = (found(shuffled, searcher, one, "c9") for one in (replace(view, prepared=norms), exact))
    assert len(set(some) & set(every)) >= 8


def test_codes_of_a_part_are_those_of_the_graph_that_holds_it_whole(root: Path) -> None:
    items = clustered()
    keeper = keeper_of(items, root)
    plain = searcher_over(items, None).prepare(view_of(EYE)).parts
    shared = searcher_over(items, keeper).prepare(view_of(EYE))
    (serial,) = plain
    mine, graphs = shared.parts[serial].indexed.items, shared.graphs.covered.graphs
    own = plain[serial].indexed.items
    assert isinstance(mine, DenseItems)
    assert isinstance(own, DenseItems)
    assert np.shares_memory(mine.codes, graphs[0].graph.codes)
    assert np.array_equal(mine.codes, own.codes)
    assert np.array_equal(mine.bounds, own.bounds)


@pytest.mark.parametrize("name", ["codes.npy", "bounds.npy", "hashes.npy", "links.npy", "about.json"])
@pytest.mark.parametrize("how", ["flipped", "torn", "gone"])
def test_a_damaged_graph_is_never_searched_and_is_removed(root: Path, name: str, how: str) -> None:
    (folder,) = files.graphs_in(root)
    path = folder / name
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(content if how == "flipped" else content[: len(content) // 2])
    if how == "gone":
        path.unlink()
    with pytest.raises(files.DamagedGraph):
        files.load(folder)
    items = clustered()
    keeper = keeper_of(items, root, least=10**6, built=False)
    keeper.look()
    assert (keeper.status().damaged, keeper.status().graphs) == (1, ())
    assert files.graphs_in(root) == []


def test_a_damaged_graph_is_built_again(root: Path) -> None:
    (folder,) = files.graphs_in(root)
    (folder / "links.npy").write_bytes(b"\x00" * 100)
    (root / "building-left").mkdir()
    keeper = keeper_of(clustered(), root)
    assert (keeper.status().damaged, keeper.status().built) == (1, 1)
    assert files.half_written(root) == [], "what was half written is gone"
    assert keeper.status().graphs[0].living == COUNT


def test_links_that_lead_nowhere_are_refused() -> None:
    codes, bounds = code_rows(more(50, 1))
    links = np.full((50, 4), -1, np.int32)
    hashes = hashes_of(more(50, 1))
    assert len(Graph.of(codes, bounds, links, hashes)) == 50
    for wrong in (50, -2):
        links[7, 0] = wrong
        with pytest.raises(ValueError, match="leads to no row"):
            Graph.of(codes, bounds, links, hashes)


def test_who_does_not_hold_the_lock_takes_what_the_other_built(tmp_path: Path) -> None:
    items = clustered(1500)
    waiting = keeper_of(items, tmp_path, built=False)
    with (tmp_path / LOCK).open("ab") as lock:
        assert is_locked(lock)
        waiting.look()
        assert (waiting.status().built, waiting.status().graphs) == (0, ())
    keeper_of(items, tmp_path)
    waiting.look()
    assert (waiting.status().built, waiting.status().adopted) == (0, 1)


def test_a_build_whose_process_is_killed_leaves_search_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.serve.retrieve.graphs.sys.executable", "/bin/false")
    items = clustered(1500)
    keeper = keeper_of(items, tmp_path, built=False)
    keeper.look()
    assert (keeper.status().failed, keeper.status().built) == (1, 0)
    assert [one.name for one in tmp_path.iterdir()] == [LOCK]
    searcher = searcher_over(items, keeper)
    view = view_of(EYE)
    assert len(found(items, searcher, replace(view, prepared=searcher.prepare(view)), "a9")) == 10


def test_equal_objects_are_all_found(tmp_path: Path) -> None:
    items = Items("dense", DIM)
    values = more(1200, 1)
    values[1100:] = values[0]
    items.put([f"a{i}" for i in range(1200)], values)
    keeper = keeper_of(items, tmp_path)
    items.put([f"twin{i}" for i in range(3)], np.repeat(values[:1], 3, axis=0))
    states, tail = states_of(keeper.covered(items.snapshot()), items.snapshot())
    assert (states[0].living, tail) == (1200, 3)
    searcher, view = searcher_over(items, keeper, 0.1), view_of(EYE)
    prepared = replace(view, prepared=searcher.prepare(view))
    twins = {"a0", *(f"a{i}" for i in range(1100, 1200)), *(f"twin{i}" for i in range(3))}
    assert set(found(items, searcher, prepared, "a0", 103)) == twins - {"a0"}


def test_what_is_built_next() -> None:
    assert plan([], 900, 1000) is None
    assert plan([], 1000, 1000) == plan([], 5000, 1000)
    one = GraphState("one", 100_000, 100_000)
    assert plan([one], 5_000, 1000) is None
    few = plan([one], 9_000, 1000)
    assert few is not None
    assert few.instead_of == frozenset()
    small = GraphState("small", 9_000, 9_000)
    grown = plan([one, small], 9_000, 1000)
    assert grown is not None
    assert grown.instead_of == {"small"}
    whole = plan([one, small], 95_000, 1000)
    assert whole is not None
    assert whole.instead_of == {"one", "small"}
    worn = plan([one, GraphState("worn", 50_000, 39_000)], 0, 1000)
    assert worn is not None
    assert worn.instead_of == {"worn"}


def test_objects_of_the_same_bits_in_two_parts_each_have_their_row_and_parts_share_codes(
    tmp_path: Path,
) -> None:
    items = clustered(1500)
    values = more(1500, 7)
    values[::100] = np.array([items.vectors[f"a{i}"] for i in range(0, 1500, 100)])
    items.put([f"b{i}" for i in range(1500)], values)
    keeper = keeper_of(items, tmp_path)
    snapshot = items.snapshot()
    assert len(snapshot.parts) == 2
    covered = keeper.covered(snapshot)
    assert set(covered.whole) == {part.serial for part in snapshot.parts}
    assert not sum(len(tail) for tail in covered.tails.values())
    (places,) = covered.places
    assert sorted(places.tolist()) == list(range(3000))
