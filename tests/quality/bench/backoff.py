"""Kinds of queries that clicks covered, and kinds that none did, by how a form gives way to the own ranking.

`python -m tests.quality.bench.backoff SET` prints one line for each form: mAP and P@10 minus the owner's
ranking. A quarter of the classes never comes; lists of the owner's ranking; forms are the product's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from learners.forms.backoff import BACKOFF, FAMILIAR, BackoffForm, usual_ratio
from learners.forms.quadratic import FoldingForm, inverse_roots
from learners.forms.serving import ServingForm
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import Space, mapped
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import SETS, Floats, Ints, RawSet, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import CLICKS, Split, Users, split

Pair = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Giving:
    """power: of the eigenvalues. share: of the own ranking, relative to the usual ratio; 0: none. backoff: 0:
    the same share for every query."""

    power: float
    share: float
    familiar: float = FAMILIAR
    backoff: float = BACKOFF


TRIED = (
    Giving(1.5, 0.0),
    Giving(1.5, 0.3, 1.0, 0.0),
    Giving(1.5, 1.0, 1.0, 0.0),
    Giving(1.5, 0.3, 1.0, 4.0),
    Giving(1.5, 0.3, 0.8, 8.0),
    Giving(1.5, 0.2, 0.8),
    Giving(1.5, 0.3),
    Giving(1.5, 1.0),
    Giving(1.0, 0.3),
    Giving(1.0, 1.0),
)


class Learned:
    """What lists taught, and its forms."""

    def __init__(self, data: RawSet, who: Split, clicks: str, seed: int) -> None:
        self._data = data
        self.space: Space = mapped(data, "precondition")
        several = len(data.views) > 1
        self._how = Learning("identity" if several else "mean")
        self._users, self._lists = Users(data, clicks, seed, who), 0
        self.W: Floats = self.space.first(self._how.start)
        self.asked = np.zeros(0, np.int64)

    def go_on(self, lists: int) -> None:
        """Learn from lists up to that number."""
        part = self._users.look(own_lists(self._data.name), lists - self._lists)
        self.W = step(self.W, self.space, part.rows, self._how.bounds(part.drawn))
        self.asked, self._lists = np.union1d(self.asked, part.rows[0]), lists

    def form(self, how: Giving) -> FoldingForm:
        """The product's form of what was learned."""
        learned = ServingForm.from_matrix(self.W, power=how.power)
        if not how.share:
            return learned
        usual = usual_ratio(learned, self.space.metric, self.space.Z[self.asked])
        made = BackoffForm.beside(learned, self.space.metric, how.share, usual)
        return BackoffForm(learned, made.own, how.share, how.familiar, how.backoff)


def scores_of(form: FoldingForm, Z: Floats) -> Scores:
    """Scores of catalog rows with the catalog."""
    roots = inverse_roots(form.self_scores(Z))

    def of(rows: Ints) -> Floats:
        return np.asarray(form.fold(Z[rows]) @ Z.T * roots)

    return of


def measured(
    name: str, lists: list[int], queries: int, tried: tuple[Giving, ...] = TRIED, clicks: str = "position"
) -> Iterator[tuple[int, Giving, dict[str, Pair]]]:
    """(lists, form, kinds of queries -> [mAP, P@10] minus the owner's ranking)."""
    data, who = load(name), split(load(name), 0, kinds=True)
    learned, own = Learned(data, who, clicks, 0), own_scores(data.joined())
    rows = {"clicked": _some(who.judged, queries), "never clicked": _some(who.unseen, queries)}
    before = {kind: np.array(judge(own, data.labels, one).pair) for kind, one in rows.items()}
    for count in lists:
        learned.go_on(count)
        for how in tried:
            scores = scores_of(learned.form(how), learned.space.Z)
            found = {kind: np.array(judge(scores, data.labels, one).pair) for kind, one in rows.items()}
            yield count, how, {kind: pair - before[kind] for kind, pair in found.items()}


def _some(rows: Ints, count: int) -> Ints:
    """At equal distances, at most so many."""
    return rows[:: max(1, len(rows) // count)][:count]


def main() -> None:
    """Print the lines of all forms."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.backoff", description=__doc__)
    parser.add_argument("set", choices=[name for name in SETS if name != "tfidf"])
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--lists", type=int, nargs="+", default=[2_000, 8_000])
    parser.add_argument("--queries", type=int, default=150)
    asked = parser.parse_args()
    for count, how, pairs in measured(asked.set, asked.lists, asked.queries, clicks=asked.clicks):
        found = ", ".join(f"{kind} {ap:+.3f} / {p10:+.3f}" for kind, (ap, p10) in pairs.items())
        given = f"share {how.share}, power {how.backoff:g} from {how.familiar:g}"
        print(f"{asked.set}, {count:,} lists, power {how.power:g}, {given}: {found}", flush=True)


if __name__ == "__main__":
    main()
