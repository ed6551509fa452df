"""How soon interleaved lists tell two rankings of the photos apart; `python -m tests.quality.interleaving`.

Rankings by all five descriptors against those by four of them; users of the demo's kind (they look by place,
and click one wrong object in ten). For 600 lists the mean z of three seeds: of the draft as it is made; of
the classical one, where an object that both rankings have next is of the team that picks it; and of clicks
per list in two groups of 600 lists each. Its table is in the decision about the draft.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from daemon.demo.pack_files import load_pack
from daemon.demo.users import position_biased
from daemon.serve.interleave import FIRST, SECOND, Place, team_draft
from daemon.serve.query import ScoredId
from daemon.validate.preferences import second_over_first
from streams.event import Draft

LISTS, SEEDS, K = 600, 3, 10
Rows = npt.NDArray[np.float32]
Drafting = Callable[[Sequence[ScoredId], Sequence[ScoredId], int, Callable[[], bool]], list[Place]]


def classical(
    first: Sequence[ScoredId], second: Sequence[ScoredId], k: int, coin: Callable[[], bool]
) -> list[Place]:
    """Every place has a team: round by round each ranking picks the best that is not there yet."""
    places: list[Place] = []
    taken: set[str] = set()
    while len(places) < k:
        order = [(first, FIRST), (second, SECOND)]
        if coin():
            order.reverse()
        for ranking, team in order:
            hit = next((one for one in ranking if one.id not in taken), None)
            if hit is not None:
                places.append(Place(hit, team))
                taken.add(hit.id)
    return places[:k]


def nearest(rows: Rows, query: int) -> list[ScoredId]:
    """The ten nearest rows, best first."""
    scores = rows @ rows[query]
    best = np.argpartition(-scores, K + 2)[: K + 2]
    best = best[np.argsort(-scores[best], kind="stable")]
    return [ScoredId(str(row), float(scores[row])) for row in best[best != query][:K]]


def z(values: Sequence[float]) -> float:
    """Mean over its standard error."""
    return float(np.mean(values) / np.sqrt(np.var(values) / len(values)))


def compared(worse: Rows, better: Rows, labels: npt.NDArray[np.str_], seed: int) -> list[float]:
    """z of both drafts and of clicks per list side by side, positive for `better`."""
    draw, toss = np.random.default_rng(seed), random.Random(seed)
    drafts: list[Drafting] = [team_draft, classical]
    values: list[list[float]] = [[], []]
    clicks: list[list[int]] = [[], []]
    for query in draw.choice(len(labels), LISTS, replace=False).tolist():
        lists = [nearest(worse, query), nearest(better, query)]
        for kept, draft in zip(values, drafts, strict=True):
            places = draft(lists[0], lists[1], K, lambda: toss.random() < 0.5)
            same = labels[[int(place.hit.id) for place in places]] == labels[query]
            teams = Draft((), tuple(place.team for place in places))
            kept.append(second_over_first(teams, position_biased(same, draw)))
        for group, hits in zip(clicks, lists, strict=True):
            same = labels[[int(hit.id) for hit in hits]] == labels[query]
            group.append(len(position_biased(same, draw)))
    apart = np.mean(clicks[1]) - np.mean(clicks[0])
    side_by_side = apart / np.sqrt(sum(np.var(group) for group in clicks) / LISTS)
    return [*map(z, values), float(side_by_side)]


def precision(rows: Rows, labels: npt.NDArray[np.str_]) -> float:
    """P@10 of 400 queries."""
    queries = np.random.default_rng(0).choice(len(labels), 400, replace=False).tolist()
    return float(
        np.mean([(labels[[int(h.id) for h in nearest(rows, one)]] == labels[one]).mean() for one in queries])
    )


def main() -> None:
    """Print the table."""
    pack = load_pack()
    views = {name: np.asarray(one.values, np.float32) for name, one in pack.catalog.views.items()}
    unit = {
        name: v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for name, v in views.items()
    }
    every = np.hstack(list(unit.values()))
    print("| all five descriptors against | P@10 | draft | classical | two groups |\n|---|---|---|---|---|")
    for left_out in unit:
        four = np.hstack([view for name, view in unit.items() if name != left_out])
        found = np.mean([compared(four, every, pack.labels, seed) for seed in range(SEEDS)], axis=0)
        rates = f"{precision(four, pack.labels):.3f} -> {precision(every, pack.labels):.3f}"
        print(f"| those without {left_out} | {rates} | " + " | ".join(f"{one:.1f}" for one in found) + " |")


if __name__ == "__main__":
    main()
