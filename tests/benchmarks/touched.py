"""OASIS with touched entries of W alone, at up to a million columns: steps/s, memory, versions; and against
OASIS with all of W on tf-idf texts.

    python -m tests.benchmarks.touched [--columns 1000000] [--events 120000] [--entries 16000000]
    python -m tests.benchmarks.touched --texts 120000

Vectors as of texts: some 80 terms each, drawn by Zipf's law, half of them from one of 200 subjects, weighted
by idf and of unit length; a query and what is clicked for it are of one subject, what is skipped is of
another; columns in the order of frequency. Memory is what the process takes beyond the same process before
any event. --texts: the tf-idf questions and simulated clicks of `tests.quality`, so many triplets; mAP and
P@10 by labels of forms of both learners, and of a smaller budget of entries. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints.local import LocalStore
from checkpoints.manifest import VersionMeta
from checkpoints.publisher import AsyncPublisher, Published
from checkpoints.versions import VersionStore
from learners import SparseBlock, TripletBatch
from learners.oasis_sparse import OasisSparse, OasisSparseConfig
from learners.outcome import UPDATED
from tests.benchmarks.tenants import rss_mb

BATCH = 1_000
TERMS = 80
SUBJECTS, TERMS_OF_SUBJECT = 200, 5_000
EXPONENT = 1.07
"""Of Zipf's law."""
QUESTIONS = 20


def zipf(rng: np.random.Generator, count: int, most: int) -> NDArray[np.int64]:
    """Ranks from 0 on, below `most`."""
    rest = 1 - EXPONENT
    ranks: NDArray[np.int64] = ((1 + rng.random(count) * (most**rest - 1)) ** (1 / rest) - 1).astype(np.int64)
    return np.minimum(ranks, most - 1)


class Texts:
    """Draws triplets of texts."""

    def __init__(self, columns: int, seed: int = 0) -> None:
        self._rng, self._columns = np.random.default_rng(seed), columns
        size = min(TERMS_OF_SUBJECT, columns)
        self._own = np.sort(self._rng.integers(0, columns, (SUBJECTS, size)), axis=1)
        self._idf = np.log(np.arange(columns) + 2.0)

    def block(self, subjects: NDArray[np.int64]) -> SparseBlock:
        """A text of each of these subjects."""
        n, rng = len(subjects), self._rng
        drawn = np.empty((n, 2 * TERMS), np.int64)
        drawn[:, :TERMS] = zipf(rng, n * TERMS, self._columns).reshape(n, TERMS)
        own = zipf(rng, n * TERMS, self._own.shape[1]).reshape(n, TERMS)
        drawn[:, TERMS:] = self._own[subjects[:, None], own]
        pointers, columns, values = [0], [], []
        for row in drawn:
            terms, times = np.unique(row, return_counts=True)
            if len(terms) > TERMS:
                chosen = np.sort(rng.choice(len(terms), TERMS, replace=False))
                terms, times = terms[chosen], times[chosen]
            weights = (1 + np.log(times)) * self._idf[terms]
            columns.append(terms)
            values.append(weights / np.linalg.norm(weights))
            pointers.append(pointers[-1] + len(terms))
        return SparseBlock(
            np.array(pointers, np.int64),
            np.concatenate(columns).astype(np.int32),
            np.concatenate(values).astype(np.float32),
            self._columns,
        )

    def triplets(self, n: int) -> TripletBatch:
        """So many: query and clicked of one subject, skipped of another."""
        asked = self._rng.integers(0, SUBJECTS, n)
        other = (asked + self._rng.integers(1, SUBJECTS, n)) % SUBJECTS
        return TripletBatch(self.block(asked), self.block(asked), self.block(other))


def measure(columns: int, events: int, entries: int) -> dict[str, Any]:
    """A stream of texts, learned; then a version of it."""
    texts, config = Texts(columns), OasisSparseConfig(entries=entries)
    OasisSparse.warm_up(sparse_rows=True)
    learner = OasisSparse(columns, config)
    learner.form()  # its kernels
    learner = OasisSparse(columns, config)
    before, curve, seconds, updated = rss_mb(), [], 0.0, 0
    for at in range(0, events, BATCH):
        batch = texts.triplets(min(BATCH, events - at))
        began = time.perf_counter()
        info = learner.learn_many(batch)
        seconds += time.perf_counter() - began
        updated += int(np.count_nonzero(info.outcome == UPDATED))
        if (at // BATCH) % max(1, events // BATCH // 12) == 0 or at + BATCH >= events:
            curve.append([at + len(batch), learner.entries, round(rss_mb() - before)])
    used = rss_mb() - before
    questions = texts.triplets(QUESTIONS).query
    with tempfile.TemporaryDirectory(dir=".") as folder:
        versions = VersionStore(LocalStore(Path(folder)))
        publisher = AsyncPublisher(versions, versions.claim())
        began = time.perf_counter()
        state = learner.state()
        gathered = time.perf_counter() - began
        assert publisher.begin(state, VersionMeta())
        done = publisher.drain()
        assert isinstance(done, Published)
        publisher.close()
        loaded = versions.load(done.manifest.number)
    began = time.perf_counter()
    again = OasisSparse.from_state(loaded.arrays, config)
    restored = time.perf_counter() - began
    assert again.entries == learner.entries
    began = time.perf_counter()
    form = again.form(copy=False)
    transposed = time.perf_counter() - began
    began = time.perf_counter()
    form.fold(questions)
    folded = (time.perf_counter() - began) / QUESTIONS
    return {
        "columns": columns,
        "events": events,
        "budget_of_entries": entries,
        "events_per_second": round(events / seconds),
        "updated": updated,
        "touched_per_update": TERMS * 2 * TERMS,
        "entries": learner.entries,
        "times_dropped": learner.drops,
        "memory_mb": round(used),
        "bytes_per_entry": round(used * 1e6 / max(1, learner.entries), 1),
        "events_entries_mb": curve,
        "version_mb": round(done.bytes / 1e6, 1),
        "version_bytes_per_entry": round(done.bytes / max(1, learner.entries), 2),
        "stall_seconds": round(gathered + done.stall_seconds, 2),
        "restore_seconds": round(restored, 2),
        "transpose_seconds": round(transposed, 2),
        "fold_ms": round(1000 * folded, 2),
    }


def on_texts(events: int) -> dict[str, Any]:
    """Both learners on the same clicks: how far apart they are, and how well their forms retrieve."""
    from learners.block import as_block
    from learners.forms.quadratic import IdentityForm
    from learners.forms.serving import ServingForm
    from tests.quality.bench.merge import JUDGED, World
    from tests.quality.bench.retrieval import judge
    from tests.quality.bench.users import split

    found: dict[str, Any] = {"triplets": events}
    learners, world = {}, None
    for name in ("oasis", "oasis-sparse"):
        world = World.of("tfidf", name, "position", 0, events)
        began = time.perf_counter()
        state, _ = world.learned(world.first(), np.arange(events))
        found[f"{name}_events_per_second"] = round(events / (time.perf_counter() - began))
        learners[name] = world.restored(state)
    assert world is not None
    dense: Any = learners["oasis"]
    touched: Any = learners["oasis-sparse"]
    W, items = dense.W, as_block(world.space.Z)
    S = np.diag(touched.diagonal) + touched.change().toarray()
    found |= {
        "columns": len(W),
        "entries": touched.entries,
        "largest_difference_of_W": float(np.abs(W - S).max()),
        "relative_difference_of_W": float(np.linalg.norm(W - S) / np.linalg.norm(W)),
    }
    judged = split(world.data, 0).judged
    queries = judged[:: max(1, len(judged) // JUDGED)]
    forms = {
        "cosine of the mapped texts": IdentityForm(len(W), True),
        "oasis, projected and sharpened": ServingForm.from_matrix(W, True),
        "oasis, projected": ServingForm.from_matrix(W, True, power=1.0),
        "oasis-sparse, as it is served": touched.form(),
        "oasis-sparse, normalised without the transpose": touched.form(symmetric=False),
        "oasis-sparse, as learned": touched.as_learned(),
    }
    for part in (2, 4, 8):
        budget = touched.entries // part
        config = world.config.model_copy(update={"entries": budget})
        small = replace(world, config=config)
        one: Any = small.restored(small.learned(small.first(), np.arange(events))[0])
        forms[f"... with {budget:,} entries at most, dropped {one.drops} times"] = one.form()
    for told, form in forms.items():

        def scores(rows: Any, form: Any = form) -> Any:
            return form.scores(items.take(np.asarray(rows)), items)

        pair = judge(scores, world.data.labels, queries).pair
        found[told] = [round(float(one), 3) for one in pair]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=120_000)
    parser.add_argument("--entries", type=int, default=OasisSparseConfig().entries)
    parser.add_argument("--texts", type=int, default=0)
    given = parser.parse_args()
    told = on_texts(given.texts) if given.texts else measure(given.columns, given.events, given.entries)
    print(json.dumps(told, indent=1))
