"""What another embedding model for queries keeps, when objects stay in the vectors of the old one.

`python -m tests.quality.bench.migration` prints a row for each pair of models and number of pairs. Texts
embedded by both models give a matrix M from the new to the old space; queries that were in no pair are
embedded by the new model alone and ask the old vectors with M q. Beside it stands what embedding all objects
anew would give: the same queries against the new vectors of the objects.

mAP and P@10 are by labels, the shares those of re-embedding (`migration_recall`); `same` is the share of the
10 nearest objects that both have. Ridge regression, as it is and brought to the nearest orthogonal matrix,
and the orthogonal matrix of the pairs themselves (Procrustes): which one is chosen by the cosine of M q with
the old vector, over a tenth of the pairs left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from sklearn.decomposition import TruncatedSVD

from tests.quality.bench.retrieval import judge, nearest
from tests.quality.bench.sets import Floats, Ints, load, unit

PAIRS = (500, 2_000, 4_500)
QUERIES = 500
LEFT_OUT = 0.1
"""Of the pairs: they choose how M is made."""
WEIGHTS = (0.003, 0.01, 0.03, 0.1, 0.3)
"""Of ridge, as shares of the mean eigenvalue of the new vectors' second moments, times their dimension."""


@cache
def models() -> Mapping[str, Floats]:
    """By name, the same texts by several models, rows of unit length."""
    sentences = load("sentences").views["minilm"]
    wide = TruncatedSVD(400, random_state=0).fit_transform(load("tfidf").views["terms"])
    return {
        "lsa 200": load("lsa").views["lsa"],
        "lsa 400": unit(wide),
        "minilm, first 256": unit(sentences[:, :256]),
        "minilm 384": sentences,
    }


CHANGES = (
    ("lsa 200", "lsa 400"),
    ("minilm, first 256", "minilm 384"),
    ("lsa 200", "minilm 384"),
    ("minilm 384", "lsa 400"),
)
"""From which model to which."""


def orthogonal(A: Floats) -> Floats:
    """The nearest matrix with orthonormal rows or columns."""
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return np.asarray(U @ Vt, np.float32)


def ways(new: Floats, old: Floats) -> Mapping[str, Callable[[], Floats]]:
    """By name, how M, float32 [new, old], is made of pairs."""
    moments, across = new.T @ new, new.T @ old
    share = np.trace(moments)

    def ridge(weight: float) -> Floats:
        regular = moments + weight * share / len(moments) * np.eye(len(moments), dtype=np.float32)
        return np.asarray(np.linalg.solve(regular, across), np.float32)

    made: dict[str, Callable[[], Floats]] = {"procrustes": lambda: orthogonal(across)}
    for weight in WEIGHTS:
        made[f"ridge {weight:g}"] = lambda weight=weight: ridge(weight)
        made[f"ridge {weight:g}, procrustes"] = lambda weight=weight: orthogonal(ridge(weight))
    return made


def chosen(new: Floats, old: Floats) -> tuple[str, Floats]:
    """M by the way that fits best where it was not fitted; then from all pairs."""
    kept = round((1 - LEFT_OUT) * len(new))
    found = {
        name: float((unit(new[kept:] @ make()) * old[kept:]).sum(axis=1).mean())
        for name, make in ways(new[:kept], old[:kept]).items()
    }
    best = max(found, key=lambda name: found[name])
    return best, ways(new, old)[best]()


def measured(before: str, after: str, count: int, labels: Ints) -> str:
    """One row of the table."""
    old, new = models()[before], models()[after]
    order = np.random.default_rng(0).permutation(len(old))
    queries, pairs = np.sort(order[:QUERIES]), order[QUERIES : QUERIES + count]
    way, M = chosen(new[pairs], old[pairs])
    moved = unit(new @ M)
    anew = judge(lambda rows: new[rows] @ new.T, labels, queries).pair
    kept = judge(lambda rows: moved[rows] @ old.T, labels, queries).pair
    was = judge(lambda rows: old[rows] @ old.T, labels, queries).pair
    found = nearest(lambda rows: moved[rows] @ old.T, 10, len(old))[queries]
    wanted = nearest(lambda rows: new[rows] @ new.T, 10, len(old))[queries]
    same = float(np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, wanted, strict=True)]))
    shares = " / ".join(f"{a / b:.3f}" for a, b in zip(kept, anew, strict=True))
    told = [f"{one[0]:.3f} / {one[1]:.3f}" for one in (was, anew, kept)]
    return f"| {before} -> {after} | {count:,} | {way} | {' | '.join(told)} | {shares} | {same:.2f} |"


def main() -> None:
    """Print the table."""
    labels = load("lsa").labels
    print("| models | pairs | chosen | old model | re-embedded | M q, old vectors | share | same |")
    print("|---|---|---|---|---|---|---|---|")
    for before, after in CHANGES:
        for count in PAIRS:
            print(measured(before, after, count, labels), flush=True)


if __name__ == "__main__":
    main()
