"""While models are swapped and objects come and go, each hit has the score of the model its answer names."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from daemon.serve.query import Query, QueryError
from tests.daemon.serve.retrieve.makers import DIM, learned, searcher_of, several_parts, view_of
from tests.learners.examples import rows

MODELS, ROUNDS = 4, 150


def test_no_answer_mixes_models_or_catalogs() -> None:
    rng, items = np.random.default_rng(0), several_parts("sparse")
    coming = {f"c{i}": rows(rng, 1, DIM, 1.0) for i in range(ROUNDS)}
    everything = several_parts("sparse")
    everything.put(list(coming), np.vstack(list(coming.values())))
    everything.put(["q"], rows(rng, 1, DIM, 1.0))
    items.put(["q"], everything.vectors["q"][None])
    views = [view_of(learned(seed), number=seed) for seed in range(1, MODELS + 1)]
    whole, _ = searcher_of(everything)
    truth: dict[int, dict[str, float]] = {}
    for view in views:
        hits = whole.search_view(view, [Query(id="q", k=10_000)]).results[0]
        assert not isinstance(hits, QueryError)
        truth[view.model.version] = {hit.id: hit.score for hit in hits}

    searcher, replica = searcher_of(items, views[0])
    stopping, failures = threading.Event(), []

    def follow() -> None:
        turn = 0
        while not stopping.is_set():
            turn += 1
            view = views[turn // 3 % MODELS]
            held = replica.view
            if held is not None and held.formed == view.formed:  # the items changed: what is known is kept
                view = replace(view, prepared=held.prepared)
            try:
                replica.view = replace(view, prepared=searcher.prepare(view))
            except Exception as error:
                failures.append(error)
                return

    def change() -> None:
        for name, vector in coming.items():
            if stopping.is_set():
                return
            items.put([name], vector)
            while items.index.work():
                pass
            if name.endswith("7"):
                items.remove([name])

    threads = [threading.Thread(target=follow, daemon=True), threading.Thread(target=change, daemon=True)]
    for thread in threads:
        thread.start()
    seen: set[int] = set()
    asked = 0
    try:
        while threads[1].is_alive() or asked < ROUNDS or len(seen) < MODELS:
            assert not failures
            answers = searcher.search("latest", [Query(id="q", k=8), Query(id="a0", k=3)])
            hits = answers.results[0]
            assert not isinstance(hits, QueryError)
            assert len(hits) == 8
            expected = truth[answers.model.version]
            assert [hit.score for hit in hits] == [expected[hit.id] for hit in hits]
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            seen.add(answers.model.version)
            asked += 1
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
