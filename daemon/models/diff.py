"""What changed between two versions, in the words of people: features, spectra, queries. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, Int64s, row_blocks
from learners.forms.quadratic import FoldingForm, ServedForm, featured, folds, has_terms, terms_of
from learners.maps import FittedSpaceMap, ProjectionMap
from learners.search import SearchItems, kept_scores, topk
from learners.spectrum import Spectrum

K = 10
"""Results compared per query."""


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """Two features (equal on the diagonal) whose similarity went from `before` to `after`."""

    first: str
    second: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class DirectionChange:
    """A direction along which similarity rose (value > 0) or fell: features with their weights in it."""

    value: float
    features: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class MovedQuery:
    """A query of which only `shared` of the nearest objects are the same; `entered` and `left` by rank."""

    id: str
    shared: int
    entered: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Queries:
    """A sample of the catalog's objects, drawn with `seed`, each asked for its `k` nearest others.

    shared: mean share of the nearest that both versions name, 1 when nothing moved; unchanged: queries with
    the same ones in the same order; moved: those that share fewest, the worst first.
    """

    sampled: int
    seed: int
    k: int
    shared: float
    unchanged: int
    moved: tuple[MovedQuery, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """From version `before` to version `after`.

    relative and symmetric as in `learners.spectrum.Change`. spectra: of both, none where there is no matrix.
    queries: None where they were not asked. skipped: what was left out and why, one line each.
    """

    before: int
    after: int
    dim: int
    relative: float | None
    symmetric: float | None
    steps: tuple[FeatureChange, ...]
    directions: tuple[DirectionChange, ...]
    spectra: tuple[Spectrum, ...]
    queries: Queries | None
    skipped: tuple[str, ...]


def feature_names(fitted: FittedSpaceMap) -> Callable[[int], str]:
    """Names of the space's coordinates: "view[17]", or "view component 3" where a map mixed features; of
    columns in another order the numbers that they have in the given vectors."""
    starts = np.cumsum([0, *(view.dim for view in fitted.views.values())])
    views = list(fitted.views.items())
    given = {name: view.given_columns() for name, view in views}

    def name(coordinate: int) -> str:
        place = int(np.searchsorted(starts, coordinate, side="right")) - 1
        view, its_map = views[place]
        at = coordinate - int(starts[place])
        if (columns := given[view]) is not None:
            at = int(columns[at])
        return f"{view} component {at}" if isinstance(its_map, ProjectionMap) else f"{view}[{at}]"

    return name


def sample(count: int, size: int, seed: int) -> Int64s:
    """At most `size` of `count` rows, ascending, drawn without repetition."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(count, min(size, count), replace=False)).astype(np.int64)


def nearest(form: ServedForm, mapped: Block, items: SearchItems, rows: Int64s, k: int = K) -> Int64s:
    """The k objects nearest to each object named by `rows`, itself left out: int64 [len(rows), k], -1 where
    there are fewer. mapped: all objects; items: the same, as the search reads them.
    """
    found = np.full((len(rows), k), -1, np.int64)
    best = _searched(form, mapped, items, rows, k + 1) if folds(form) else _scored(form, mapped, rows, k + 1)
    for at, own in enumerate(rows):
        others = next(best)
        others = others[others != own][:k]
        found[at, : len(others)] = others
    return found


def _searched(form: FoldingForm, mapped: Block, items: SearchItems, rows: Int64s, k: int) -> Iterator[Int64s]:
    terms = terms_of(form, form.self_scores(mapped)) if has_terms(form) else None
    scale, offset = (terms, None) if form.normalised else (None, terms)
    for part in row_blocks(len(rows), form.dim):
        yield from topk(form.fold(mapped.take(rows[part])), items, scale, None, k, offset=offset)[1]


def _scored(form: ServedForm, mapped: Block, rows: Int64s, k: int) -> Iterator[Int64s]:
    known = form.features(mapped) if featured(form) else None
    for part in row_blocks(len(rows), len(mapped)):
        asked = mapped.take(rows[part])
        if featured(form) and known is not None:
            scores = form.pair_scores(asked, known[rows[part]], mapped, known)
        else:
            scores = form.scores(asked, mapped)
        yield from np.argsort(-kept_scores(scores), axis=1, kind="stable")[:, :k]


def moved_queries(
    ids: Sequence[str], rows: Int64s, lists: tuple[Int64s, Int64s], seed: int, most: int
) -> Queries:
    """How the lists of the queries `rows` moved; lists: before and after, each as `nearest` gives it."""
    before, after = lists
    changes = [_moved(ids, int(row), b, a) for row, b, a in zip(rows, before, after, strict=True)]
    sizes = [max(1, int(np.sum(own >= 0))) for own in before]
    shares = [one.shared / size for one, size in zip(changes, sizes, strict=True)]
    same = np.all(before == after, axis=1)
    order = sorted((n for n in range(len(changes)) if not same[n]), key=lambda n: (shares[n], changes[n].id))
    return Queries(
        sampled=len(rows),
        seed=seed,
        k=int(before.shape[1]),
        shared=float(np.mean(shares)) if shares else 1.0,
        unchanged=int(same.sum()),
        moved=tuple(changes[n] for n in order[:most]),
    )


def _moved(ids: Sequence[str], row: int, before: NDArray[np.int64], after: NDArray[np.int64]) -> MovedQuery:
    old, new = (set(rows[rows >= 0].tolist()) for rows in (before, after))
    entered = tuple(ids[item] for item in after if item >= 0 and item not in old)
    left = tuple(ids[item] for item in before if item >= 0 and item not in new)
    return MovedQuery(ids[row], len(old & new), entered, left)
