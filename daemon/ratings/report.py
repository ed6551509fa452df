"""What ratings say: precision of both systems with its error, by rater, and how far the raters agree; ratings
as TREC qrels, which `validate.judgments = "qrels:..."` reads. Pure.

As in the human evaluation of OASIS (Chechik et al., JMLR 11, 2010, section 5.2.3), precision at k is the
share of the first k places whose object the rater marked relevant, averaged over queries and raters, and the
spread of average precision over queries is set beside that over raters.

Queries are what was drawn, so errors come from drawing them again with replacement (scipy.stats.bootstrap);
raters stay as they are. Each query counts with its mean over the raters who rated it: where everybody rated
everything, that is the mean over queries and raters.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from daemon.exits import EX_DATAERR, UserError
from daemon.ratings.study import LIST, RatedSystem, Rating, same_rater

DRAWS = 2_000
"""Bootstrap samples: the ends of an interval of 95 % then have some 50 of them beyond."""
LEVEL = 0.95
_SEED = 0
_NOT_RATED = -1

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries. error: its standard error; low, high: interval of 95 %; None with one query."""

    mean: float
    error: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class SystemPrecision:
    """Of one system: precision at 1 to LIST, and the same by each rater (means over their queries).

    spread_queries: standard deviation of average precision over the queries of a rater, mean over raters;
    spread_raters: the same over the raters of a query, mean over queries; None where nobody has two.
    """

    system: RatedSystem
    precision: tuple[Estimate, ...]
    by_rater: Mapping[str, tuple[float, ...]]
    spread_queries: float | None
    spread_raters: float | None


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """How far raters agree on what they both or all were shown: 1 is always, 0 is as often as by chance with
    their own shares of marks. None where it is not known or chance leaves no room (all marked alike).

    same: share of agreeing pairs of marks. cohen: mean of Cohen's kappa over `pairs` of raters (J. Cohen,
    Educational and Psychological Measurement 20, 1960). fleiss: Fleiss' kappa of all (J. L. Fleiss,
    Psychological Bulletin 76, 1971), here over `objects` that two raters or more have rated.
    """

    objects: int
    same: float | None
    cohen: float | None
    pairs: int
    fleiss: float | None


@dataclass(frozen=True, slots=True)
class RatingsReport:
    """All that is said of a study. raters: by name, how many queries they have rated. difference: precision
    of the first system less that of the second, on the same queries."""

    study: str
    queries: int
    ratings: int
    raters: Mapping[str, int]
    systems: tuple[SystemPrecision, SystemPrecision] | None = None
    difference: tuple[Estimate, ...] = ()
    agreement: RaterAgreement = field(default_factory=lambda: RaterAgreement(0, None, None, 0, None))


def report_of(study: str, ratings: Sequence[Rating]) -> RatingsReport:
    """What the ratings of one study say."""
    named: dict[str, str] = {}
    count: dict[str, int] = defaultdict(int)
    for one in ratings:
        count[named.setdefault(same_rater(one.rater), one.rater)] += 1
    queries = sorted({one.query for one in ratings})
    if not ratings:
        return RatingsReport(study, 0, 0, {})
    raters = [named[same_rater(one.rater)] for one in ratings]
    both = _system(ratings, raters, 0), _system(ratings, raters, 1)
    less = _by_query(ratings, _precisions(ratings, 0) - _precisions(ratings, 1))
    sizes = dict(sorted(count.items()))
    return RatingsReport(
        study, len(queries), len(ratings), sizes, both, estimates(less), agreement_of(ratings)
    )


def precision_at(hits: Sequence[bool]) -> Floats:
    """Precision at 1 to LIST, float64 [LIST]; hits[i]: whether the object at rank i + 1 is relevant. Places
    that a short list lacks are misses."""
    marks = np.zeros(LIST)
    marks[: len(hits)] = hits
    return np.asarray(np.cumsum(marks) / np.arange(1, LIST + 1), np.float64)


def average_precision(precision: Floats) -> float:
    """Mean of the precision at the ranks of relevant objects, from precision at 1 to LIST; 0 without any."""
    ranks = np.arange(1, LIST + 1)
    hits = np.diff(np.rint(precision * ranks), prepend=0.0) > 0
    return float(precision[hits].mean()) if hits.any() else 0.0


def estimates(rows: Floats) -> tuple[Estimate, ...]:
    """For each column of float64 [queries, n] its mean, with errors of drawing the queries again."""
    from scipy.stats import bootstrap  # late: a role that is asked for no report never loads it

    means = rows.mean(axis=0)
    if len(rows) < 2:
        return tuple(Estimate(float(one)) for one in means)
    drawn = bootstrap(
        (rows,),
        np.mean,
        n_resamples=DRAWS,
        batch=200,
        axis=0,
        confidence_level=LEVEL,
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    )
    ends = drawn.confidence_interval
    columns = (means, drawn.standard_error, ends.low, ends.high)
    return tuple(Estimate(*(float(one) for one in row)) for row in zip(*columns, strict=True))


def agreement_of(ratings: Sequence[Rating]) -> RaterAgreement:
    """How far the raters of one study agree."""
    place: dict[tuple[str, str], int] = {}
    given: dict[str, dict[int, bool]] = defaultdict(dict)
    for rating in ratings:
        mine = given[same_rater(rating.rater)]
        for one in rating.results:
            mine[place.setdefault((rating.query, one.id), len(place))] = one.relevant
    marks = np.full((len(given), len(place)), _NOT_RATED, np.int8)
    for row, mine in zip(marks, given.values(), strict=True):
        row[list(mine)] = list(mine.values())
    kappas = [kappa for a, b in combinations(marks, 2) if (kappa := cohens_kappa(a, b)) is not None]
    counts = np.stack([(marks == 1).sum(axis=0), (marks == 0).sum(axis=0)], axis=1).astype(np.float64)
    counts = counts[counts.sum(axis=1) > 1]
    cohen = math.fsum(kappas) / len(kappas) if kappas else None
    return RaterAgreement(len(counts), same_share(counts), cohen, len(kappas), fleiss_kappa(counts))


def cohens_kappa(one: NDArray[np.int8], other: NDArray[np.int8]) -> float | None:
    """Cohen's kappa of the marks of two raters on what both rated, int8 [objects]: 1, 0, or _NOT_RATED; None
    for nothing, or where both marked all alike."""
    from sklearn.metrics import cohen_kappa_score

    both = (one != _NOT_RATED) & (other != _NOT_RATED)
    if not both.any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where it is not defined, which is told by None
        kappa = float(cohen_kappa_score(one[both], other[both], labels=[0, 1]))
    return kappa if math.isfinite(kappa) else None


def same_share(counts: Floats) -> float | None:
    """Mean over objects of the share of agreeing pairs of raters, counts float64 [objects, categories]."""
    if not len(counts):
        return None
    total = counts.sum(axis=1)
    return float(((counts * (counts - 1)).sum(axis=1) / (total * (total - 1))).mean())


def fleiss_kappa(counts: Floats) -> float | None:
    """Fleiss' kappa, counts float64 [objects, categories]: how many raters chose each category.

    Objects may have different numbers of raters, two at least; with equal ones it is the formula of the
    paper. None without objects, or where one category alone was chosen.
    """
    same = same_share(counts)
    if same is None:
        return None
    shares = counts.sum(axis=0) / counts.sum()
    chance = float((shares**2).sum())
    return None if math.isclose(chance, 1.0) else (same - chance) / (1.0 - chance)


def _system(ratings: Sequence[Rating], raters: Sequence[str], which: int) -> SystemPrecision:
    rows = _precisions(ratings, which)
    mine = {rater: rows[[one == rater for one in raters]] for rater in sorted(set(raters))}
    average = np.array([average_precision(row) for row in rows])
    queries = [one.query for one in ratings]
    return SystemPrecision(
        ratings[0].systems[which],
        estimates(_by_query(ratings, rows)),
        {rater: tuple(part.mean(axis=0).tolist()) for rater, part in mine.items()},
        _mean_spread(average, raters),
        _mean_spread(average, queries),
    )


def _precisions(ratings: Sequence[Rating], which: int) -> Floats:
    """Precision at 1 to LIST of one system's list in each rating, float64 [ratings, LIST]."""
    rows = []
    for rating in ratings:
        hits = [False] * LIST
        for one in rating.results:
            rank = one.ranks[which]
            if rank is not None and rank <= LIST:
                hits[rank - 1] = one.relevant
        rows.append(precision_at(hits))
    return np.array(rows)


def _by_query(ratings: Sequence[Rating], rows: Floats) -> Floats:
    """The mean of the rows of each query, float64 [queries, LIST]."""
    names, place = np.unique([one.query for one in ratings], return_inverse=True)
    found = np.zeros((len(names), rows.shape[1]))
    np.add.at(found, place, rows)
    return np.asarray(found / np.bincount(place)[:, None], np.float64)


def _mean_spread(values: Floats, groups: Sequence[str]) -> float | None:
    by_group: dict[str, list[float]] = defaultdict(list)
    for value, group in zip(values.tolist(), groups, strict=True):
        by_group[group].append(value)
    found = [float(np.std(one, ddof=1)) for one in by_group.values() if len(one) > 1]
    return math.fsum(found) / len(found) if found else None


MAJORITY = 0.5
"""The share of raters that makes an object relevant: half of them are enough."""


def relevant_by_share(ratings: Sequence[Rating], share: float = MAJORITY) -> Mapping[str, Mapping[str, bool]]:
    """Per query, each object that was rated for it, and whether at least `share` of its raters, in (0, 1],
    marked it relevant. Both in the order of their ids."""
    marks: dict[str, dict[str, list[bool]]] = {}
    for rating in ratings:
        for one in rating.results:
            marks.setdefault(rating.query, {}).setdefault(one.id, []).append(one.relevant)
    return {
        query: {one: sum(given) >= share * len(given) for one, given in sorted(marks[query].items())}
        for query in sorted(marks)
    }


def qrels(ratings: Sequence[Rating], share: float = MAJORITY) -> Iterator[str]:
    """The lines `query 0 object 1` (or 0) without their ends. UserError for an id that has a space in it:
    such a line would be read as another one."""
    for query, objects in relevant_by_share(ratings, share).items():
        for one, relevant in objects.items():
            broken = next((part for part in (query, one) if part.split() != [part]), None)
            if broken is not None:
                message = f"the id {broken[:80]!r} holds white space, which a qrels file cannot say"
                raise UserError(message, "give your objects ids without spaces", EX_DATAERR)
            yield f"{query} 0 {one} {int(relevant)}"
