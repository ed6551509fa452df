"""Links are completed so that a walk can come to every row, and none is lost or said twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from learners.graph import Graph, GraphTerms, Int32s, code_rows, walked
from learners.graph_links import WANTED, complete
from learners.search import EncodedQueries

ROWS, DIM, ROOM = 600, 16, 12


def crowded() -> tuple[Int32s, np.ndarray[tuple[int, int], np.dtype[np.int8]]]:
    """Rows around six directions, each linked to two others of its own group: most have no link to them."""
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((6, DIM))
    values = centres[np.arange(ROWS) % 6] + 0.1 * rng.standard_normal((ROWS, DIM))
    links = np.full((ROWS, ROOM), -1, np.int32)
    for row in range(ROWS):
        links[row, 0] = (row % 6) if row >= 6 else (row + 1) % 6
        links[row, 1] = 6 + (row + 1) % 6
    return links, code_rows(values.astype(np.float32))[0]


def pairs(links: Int32s) -> set[tuple[int, int]]:
    rows, places = np.nonzero(links >= 0)
    return set(zip(rows.tolist(), links[rows, places].tolist(), strict=True))


def test_every_row_is_led_to_and_no_link_is_lost_or_doubled() -> None:
    links, codes = crowded()
    before = pairs(links)
    assert len({target for _, target in before}) < ROWS / 10
    assert complete(links, codes)
    after = pairs(links)
    assert len(after) == int((links >= 0).sum()), "no link is said twice"
    assert before <= after
    assert not any(row == target for row, target in after - before)
    assert (np.diff((links >= 0).astype(int), axis=1) <= 0).all(), "what is free stands behind"
    led = np.bincount([target for _, target in after], minlength=ROWS)
    assert led.min() >= 1
    assert np.mean(led >= WANTED) > 0.95


def test_walks_then_find_rows_that_they_could_not() -> None:
    links, codes = crowded()
    found = []
    for each in (links.copy(), links):
        if each is links:
            assert complete(each, codes)
        graph = Graph.of(codes, np.ones((ROWS, 3)), each, np.zeros(ROWS, np.uint64))
        queries = EncodedQueries.of(codes.astype(np.float32), codes.shape[1])
        few = graph.starts[:6]
        graph = replace(graph, starts=few, start_codes=codes[few])
        rows = walked(queries, graph, GraphTerms.of(graph, None, None), 64)
        found.append(np.mean([row in near for row, near in enumerate(rows)]))
    assert found[0] < 0.1
    assert found[1] > 0.5


def test_nobody_is_waited_for() -> None:
    links, codes = crowded()
    assert not complete(links, codes, lambda: False)
