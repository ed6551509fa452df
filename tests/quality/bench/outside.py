"""What is left of a served form in an index that is not ours: folded queries over the owner's vectors, those
rescored, and exported vectors.

`python -m tests.quality.bench.outside SET` prints a line for each way: mAP and P@10, and its share of the
served mAP. Lists of the owner's ranking, clicks by position; the forms are the product's.

The share at `CANDIDATES` of what is folded and rescored is `folded_rescored_vs_served`. With `--pgvector` the
candidates are those that a real Postgres finds by an HNSW index of the owner's vectors.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daemon.config.services import IndexConfig
from daemon.index.pgvector import PgVectorIndex
from learners.block import DenseBlock
from learners.forms.embedding import Embedding
from learners.forms.quadratic import FoldingForm, inverse_roots
from learners.maps.linear import linear_space
from tests.harness.postgres import started
from tests.quality.bench.backoff import Giving, Learned, scores_of, some
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import Space
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import SETS, Floats, Ints, RawSet, load
from tests.quality.bench.users import CLICKS, split

CANDIDATES = 200
"""Of a folded query, that the normaliser puts in order."""
FORMS = (Giving(1.5, 0.3), Giving(1.5, 0.2, 0.8), Giving(1.5, 0.0))
OWN, SERVED, RESCORED = "own ranking", "served", f"folded, {CANDIDATES} rescored"
EMBEDDED = "embedded"


FindCandidates: TypeAlias = Callable[[Floats], Ints]
"""Takes folded queries [n, d]; the rows of `CANDIDATES` + 1 objects for each, best first, int64."""


@contextmanager
def in_postgres(held: Floats) -> Iterator[FindCandidates]:
    """Vectors [n, d] in a table with an index, asked by the product's own adapter."""
    with tempfile.TemporaryDirectory(prefix="tripletd-pg-") as folder:
        server = started(Path(folder) / "data")
        try:
            server.table("held", held, index="vector_ip_ops")
            given = {"store": "pgvector", "address": server.uri, "collection": "held"}
            bounds = {"width": 2 * CANDIDATES, "timeout": "60s", "connections": 1}
            config = IndexConfig.model_validate(given | bounds)
            index = PgVectorIndex(config)

            def find(folded: Floats) -> Ints:
                asked = (index.search(one, CANDIDATES + 1) for one in folded.tolist())
                return np.array([[int(one.id[1:]) for one in found] for found in asked])

            yield find
            index.close()
        finally:
            server.close()


def ways(
    form: FoldingForm, space: Space, data: RawSet, find: FindCandidates | None = None
) -> dict[str, Scores]:
    """Scores of an index by what it holds and is asked with, over a set of dense views. find: candidates of
    an index that is not exact, None for exact ones."""
    assert space.fitted is not None
    linear = linear_space(space.fitted)
    assert linear is not None
    held, embedding = linear.given(data.views), Embedding.of(form)
    assert isinstance(held, DenseBlock)
    documents = embedding.documents(space.Z)
    assert isinstance(documents, DenseBlock)
    served, X = scores_of(form, space.Z), held.values
    norms = np.sqrt(form.self_scores(space.Z)).astype(np.float64)
    fit, *_ = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), norms, rcond=None)
    slope = fit[1:].astype(np.float32)

    def sent(rows: Ints) -> Floats:
        own = inverse_roots(form.self_scores(space.Z[rows]))[:, None]
        return np.asarray(linear.back(form.fold(space.Z[rows])) * own)

    def folded(rows: Ints) -> Floats:
        return np.asarray(sent(rows) @ X.T)

    def predicted(rows: Ints) -> Floats:
        return np.asarray((sent(rows) - np.float32(0.5) * slope) @ X.T)

    def rescored(rows: Ints) -> Floats:
        found, exact = folded(rows), served(rows)
        found[np.arange(len(rows)), rows] = -np.inf  # itself is no candidate
        kept = (
            np.argpartition(-found, CANDIDATES, axis=1)[:, :CANDIDATES] if find is None else find(sent(rows))
        )
        lowest, highest = exact.min(), found.max(initial=0, where=np.isfinite(found))
        below = found - (highest - lowest + 1)  # whatever was not rescored comes behind, as it was found
        np.put_along_axis(below, kept, np.take_along_axis(exact, kept, axis=1), axis=1)
        return below

    def embedded(rows: Ints) -> Floats:
        asked = embedding.queries(space.Z[rows])
        assert isinstance(asked, DenseBlock)
        return np.asarray(asked.values @ documents.values.T)

    def one_side(rows: Ints) -> Floats:
        return np.asarray(documents.values[rows] @ documents.values.T)

    return {
        SERVED: served,
        EMBEDDED: embedded,
        "embedded, documents as queries": one_side,
        RESCORED: rescored,
        "folded": folded,
        "folded, norms predicted linearly": predicted,
    }


def measured(
    name: str,
    lists: list[int],
    queries: int,
    forms: tuple[Giving, ...] = FORMS,
    clicks: str = "position",
    *,
    pgvector: bool = False,
) -> Iterator[tuple[int, Giving, dict[str, tuple[float, float]]]]:
    """(lists, form, way -> (mAP, P@10)), the owner's ranking among the ways."""
    data, who = load(name), split(load(name), 0)
    learned, rows = Learned(data, who, clicks, 0), some(who.judged, queries)
    own = judge(own_scores(data.joined()), data.labels, rows).pair
    with ExitStack() as stack:
        find = stack.enter_context(in_postgres(_held(learned.space, data))) if pgvector else None
        for count in lists:
            learned.go_on(count)
            for how in forms:
                found = ways(learned.form(how), learned.space, data, find)
                judged = {way: judge(scores, data.labels, rows).pair for way, scores in found.items()}
                yield count, how, {OWN: own} | judged


def _held(space: Space, data: RawSet) -> Floats:
    """What the index holds: the owner's vectors."""
    assert space.fitted is not None
    linear = linear_space(space.fitted)
    assert linear is not None
    held = linear.given(data.views)
    assert isinstance(held, DenseBlock)
    return held.values


def main() -> None:
    """Print a table for each number of lists and each form."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.outside", description=__doc__)
    parser.add_argument("set", choices=[name for name in SETS if name != "tfidf"])
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--lists", type=int, nargs="+", default=[2_000, 8_000])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--pgvector", action="store_true", help="candidates of a real Postgres with pgvector")
    asked = parser.parse_args()
    for count, how, found in measured(
        asked.set, asked.lists, asked.queries, clicks=asked.clicks, pgvector=asked.pgvector
    ):
        print(f"{asked.set}, {count:,} lists, {how.told}:")
        for way, (ap, p10) in found.items():
            print(f"  {way}: {ap:.3f} / {p10:.3f}, {ap / found[SERVED][0]:.3f} of served", flush=True)


if __name__ == "__main__":
    main()
