"""Many tenants with few clicks each: corrections of low rank of a shared W, beside full matrices.

    python -m tests.quality.bench.tenants [--tenants 6]

One learner learns from all classes of the customer questions (sentence embeddings, 384 dimensions). Each
tenant has 16 of the classes and calls pairs of them the same. It gives so many triplets, a third of its
objects never among them. Judged on those: mAP over the tenant's objects, in the served form.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

import numpy as np

from learners.loreta import Loreta, LoretaConfig
from learners.oasis import Oasis
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import Ints, load

CLASSES = 16
TRIPLETS = (30, 100, 400)
RANKS = (8, 16, 32)
SHARED = 8_000
CANDIDATES = 5
"""Skipped is the nearest of so many drawn at random."""


def triplets(X: Any, labels: Ints, rows: Ints, count: int, rng: np.random.Generator) -> list[Any]:
    """Rows of X: queries, clicked of the same label, skipped of another one."""
    drawn = []
    for query in rng.choice(rows, count):
        same = rows[(labels[rows] == labels[query]) & (rows != query)]
        others = rng.choice(rows[labels[rows] != labels[query]], CANDIDATES)
        drawn.append((query, rng.choice(same), others[np.argmax(X[others] @ X[query])]))
    return [X[list(one)] for one in zip(*drawn, strict=True)]


def run(tenants: int) -> None:
    """Print mAP by number of triplets, mean over tenants."""
    data = load("sentences")
    X, labels = data.joined(), data.labels
    shared = Oasis(X.shape[1])
    shared.learn_many(*triplets(X, labels, np.arange(len(X)), SHARED, np.random.default_rng(0)))
    state = {name: array.copy() for name, array in shared.state().items()}
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for tenant in range(tenants):
        rng = np.random.default_rng(100 + tenant)
        chosen = rng.permutation(np.unique(labels))[:CLASSES]
        rows = np.flatnonzero(np.isin(labels, chosen))
        own = np.full(len(labels), -1)
        for place, one in enumerate(chosen):
            own[labels == one] = place // 2
        mixed = rng.permutation(rows)
        seen, judged = mixed[: 2 * len(rows) // 3], mixed[2 * len(rows) // 3 :]
        queries = np.flatnonzero(np.isin(rows, judged))
        items, of_items = X[rows], own[rows]
        for count in TRIPLETS:
            given = triplets(X, own, seen, count, rng)
            models: dict[str, Any] = {"shared W": shared, "oasis": Oasis.from_state(state)}
            for rank in RANKS:
                models[f"loreta {rank}"] = Loreta(X.shape[1], LoretaConfig(rank=rank, start=shared.W))
            for name, model in models.items():
                if model is not shared:
                    model.learn_many(*given)
                form = model.form()
                scores = lambda some, form=form, items=items: form.scores(items[some], items)
                found[count, name].append(judge(scores, of_items, queries).pair[0])
    names = list(dict.fromkeys(name for _, name in found))
    print(f"mAP, mean of {tenants} tenants\n| triplets of a tenant | {' | '.join(names)} |")
    for count in TRIPLETS:
        print(f"| {count} | {' | '.join(f'{np.mean(found[count, name]):.4f}' for name in names)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=6)
    run(parser.parse_args().tenants)
