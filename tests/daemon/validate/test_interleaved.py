"""Outcomes of interleaved lists: credit, ties, repeats, no bias, and how soon a real difference shows."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from daemon.demo.pack_files import load_pack
from daemon.demo.users import position_biased
from daemon.serve.interleave import Place, team_draft, with_explored
from daemon.serve.query import ScoredId
from daemon.validate.preferences import outcomes, second_over_first
from streams.event import EITHER, FIRST, SECOND, Draft, DraftModel, Impression, ObjectRef

STABLE, LATEST = DraftModel("stable", 3, 100), DraftModel("latest", 9, 900)
TEAMS = (FIRST, SECOND, EITHER, SECOND, FIRST)


def made(name: str, clicked: tuple[int, ...], ts: int = 0, **more: object) -> Impression:
    shown = tuple(ObjectRef(f"o{rank}") for rank in range(len(TEAMS)))
    draft = Draft((STABLE, LATEST), TEAMS)
    return replace(Impression(name, ts, ObjectRef("q"), shown, clicked, draft=draft), **more)  # type: ignore[arg-type]


def value(clicked: tuple[int, ...], **more: object) -> float:
    return float(outcomes([made("i", clicked, **more)], (3, 100))[0])


@pytest.mark.parametrize(
    ("clicked", "outcome"),
    [((), 0.0), ((2,), 0.0), ((0,), -1.0), ((1,), 1.0), ((0, 1), 0.0), ((0, 1, 2, 3), 1 / 3), ((1, 3), 1.0)],
)
def test_credit_is_the_difference_of_the_teams_clicks(clicked: tuple[int, ...], outcome: float) -> None:
    assert value(clicked) == pytest.approx(outcome)


def test_what_was_learned_later_is_above_0_in_whichever_order_the_names_were_asked() -> None:
    assert value((0,), draft=Draft((LATEST, STABLE), TEAMS)) == 1.0


def test_only_lists_of_the_two_states_in_question_say_something() -> None:
    alone, same = Draft((STABLE,), (EITHER,) * 5), Draft((STABLE, STABLE), (EITHER,) * 5)
    lists = [made("a", (1,)), made("b", (1,), draft=None), made("c", (1,), draft=alone)]
    lists.append(made("d", (1,), draft=same))

    def told(reference: tuple[int, int], of: tuple[int, int] | None = None) -> list[float | None]:
        return [None if np.isnan(one) else one for one in outcomes(lists, reference, of)]

    assert told((3, 100)) == [1.0, None, None, None]
    assert told((3, 100), (9, 900)) == [1.0, None, None, None]
    for reference, of in [((3, 99), None), ((0, 0), None), ((9, 900), None), ((3, 100), (9, 899))]:
        assert told(reference, of) == [None] * 4, "another state, or what was learned earlier"


def ranked(rows: np.ndarray) -> list[ScoredId]:
    return [ScoredId(str(row), 0.0) for row in rows]


def outcome_of(places: list[Place], clicked: tuple[int, ...]) -> float:
    draft = Draft((STABLE, LATEST), tuple(place.team for place in places))
    return second_over_first(draft, clicked)


@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize("bias", ["first", "root", "cascade", "last"])
def test_a_user_without_preference_credits_both_alike(bias: str, explore: bool) -> None:
    """Clicks by place alone, of four kinds, on rankings that differ at random: the mean is 0 within 3.5
    standard errors (4,000 lists)."""
    draw, toss = np.random.default_rng(7), random.Random(7)
    look = {
        "first": np.array([0.9, *[0.02] * 9]),
        "root": 1 / np.sqrt(np.arange(1, 11)),
        "cascade": np.full(10, 0.3),
        "last": np.linspace(0.05, 0.8, 10),
    }[bias]
    values = []
    for _ in range(4_000):
        one, other = draw.permutation(14), draw.permutation(14)
        places = team_draft(ranked(one), ranked(other), 9, lambda: toss.random() < 0.5)
        if explore:
            places = with_explored(places, int(draw.integers(9)), ScoredId("random", 0.0), 100)
        clicks = np.flatnonzero(draw.random(9) < look[:9])
        clicked = tuple(clicks[:1].tolist() if bias == "cascade" else clicks.tolist())
        values.append(outcome_of(places, clicked))
    assert abs(np.mean(values)) < 3.5 * np.std(values) / np.sqrt(len(values))
    assert np.std(values) > 0.3


def nearest(rows: np.ndarray, query: int) -> np.ndarray:
    scores = rows @ rows[query]
    best = np.argpartition(-scores, 12)[:12]
    best = best[np.argsort(-scores[best], kind="stable")]
    return best[best != query][:10]


def test_on_real_photos_a_better_ranking_shows_in_600_lists() -> None:
    """Lists of 3,409 photos by four of five descriptors (P@10 .433) and by all five (.475), users who look
    by place and click one wrong object in ten: z > 3, and above what two groups of 600 lists each would
    show by their clicks per list."""
    pack = load_pack()
    unit = [column.values.astype(np.float32) for column in pack.catalog.views.values()]
    unit = [view / np.maximum(np.linalg.norm(view, axis=1, keepdims=True), 1e-12) for view in unit]
    without_gist = [view for name, view in zip(pack.catalog.views, unit, strict=True) if name != "gist"]
    worse, better = np.hstack(without_gist), np.hstack(unit)
    draw, toss = np.random.default_rng(0), random.Random(0)
    values: list[float] = []
    clicks: tuple[list[int], list[int]] = ([], [])
    for query in draw.choice(len(pack.labels), 600, replace=False):
        lists = [nearest(rows, query) for rows in (worse, better)]
        places = team_draft(ranked(lists[0]), ranked(lists[1]), 10, lambda: toss.random() < 0.5)
        shown = [int(place.hit.id) for place in places]
        same = pack.labels[shown] == pack.labels[query]
        values.append(outcome_of(places, position_biased(same, draw)))
        for group, rows in zip(clicks, lists, strict=True):
            group.append(len(position_biased(pack.labels[rows] == pack.labels[query], draw)))
    z = np.mean(values) / np.sqrt(np.var(values) / len(values))
    apart = np.mean(clicks[1]) - np.mean(clicks[0])
    assert z > 3
    assert z > apart / np.sqrt(sum(np.var(group) for group in clicks) / len(values))
