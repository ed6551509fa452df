"""What another embedding model for queries keeps, when objects stay in the vectors of the old one.

`python -m tests.quality.bench.migration` prints a row for each pair of models and number of pairs. Texts
embedded by both models give a matrix M from the new to the old space; queries that were in no pair are
embedded by the new model alone and ask the old vectors with M q. Beside it stands what embedding all objects
anew would give: the same queries against the new vectors of the objects.

mAP and P@10 are by labels, the shares those of re-embedding (`migration_recall`); `same` is the share of the
10 nearest objects that both have. M is fitted by what `tripletd models migrate` fits it by.

`most` is what the old vectors hold of it: the share when objects stand there by o R / ||o R||, R being the
regression of the new vectors on the old ones, so that the objects are brought to the queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from sklearn.decomposition import TruncatedSVD

from learners.maps.queries import FittedPairs, PairFit, PairSums
from tests.quality.bench.retrieval import judge, nearest
from tests.quality.bench.sets import Floats, Ints, load, unit

PAIRS = (500, 2_000, 4_500)
QUERIES = 500
BACK = 0.03
"""Of the ridge of R, as a share of the mean eigenvalue."""


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


def fitted(new: Floats, old: Floats) -> FittedPairs:
    """M as `tripletd models migrate` fits it."""
    fit = PairFit()
    fit.add(new, old)
    return fit.fit()


def normed(new: Floats, old: Floats) -> Floats:
    """R, float32 [old, new], by ridge regression of the new vectors on the old ones, to stand for the new
    vectors of objects."""
    sums = PairSums.of(old.shape[1], new.shape[1])
    sums.add(old, new)
    return sums.ridge(BACK).astype(np.float32)


def measured(before: str, after: str, count: int, labels: Ints) -> str:
    """One row of the table."""
    old, new = models()[before], models()[after]
    order = np.random.default_rng(0).permutation(len(old))
    queries, pairs = np.sort(order[:QUERIES]), order[QUERIES : QUERIES + count]
    made = fitted(new[pairs], old[pairs])
    moved = unit(new @ made.matrix)
    stand_in = unit(old @ normed(new[pairs], old[pairs]))
    anew = judge(lambda rows: new[rows] @ new.T, labels, queries).pair
    kept = judge(lambda rows: moved[rows] @ old.T, labels, queries).pair
    was = judge(lambda rows: old[rows] @ old.T, labels, queries).pair
    best = judge(lambda rows: new[rows] @ stand_in.T, labels, queries).pair
    found = nearest(lambda rows: moved[rows] @ old.T, 10, len(old))[queries]
    wanted = nearest(lambda rows: new[rows] @ new.T, 10, len(old))[queries]
    same = float(np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, wanted, strict=True)]))
    shares, most = (
        " / ".join(f"{a / b:.3f}" for a, b in zip(one, anew, strict=True)) for one in (kept, best)
    )
    told = [f"{one[0]:.3f} / {one[1]:.3f}" for one in (was, anew, kept)]
    about = [f"{before} -> {after}", f"{count:,}", made.way, *told, shares, f"{same:.2f}", most]
    return f"| {' | '.join(about)} |"


def main() -> None:
    """Print the table."""
    labels = load("lsa").labels
    titles = "models | pairs | chosen | old model | re-embedded | M q, old vectors | share | same | most"
    print(f"| {titles} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for before, after in CHANGES:
        for count in PAIRS:
            print(measured(before, after, count, labels), flush=True)


if __name__ == "__main__":
    main()
