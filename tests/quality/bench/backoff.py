"""Kinds of queries that clicks covered, and kinds that none did, by how a form gives way to the own ranking.

`python -m tests.quality.bench.backoff SET` prints one line for each form: mAP and P@10 minus the owner's
ranking. A quarter of the classes never comes; lists of the owner's ranking; forms are the product's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from daemon.validate.choosing import FAR, MOST_JUDGED, OFFERED, PLAIN, Compared, choose_by_judgments
from daemon.validate.preferences import Preference
from daemon.versions.forms import DEFAULT_FORM, FormChoice
from learners.forms.quadratic import FoldingForm, inverse_roots
from learners.forms.serving import BACKOFF, FAMILIAR, BackoffForm, ServingForm, usual_ratio
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import Space, mapped
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import SETS, Floats, Ints, RawSet, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import CLICKS, LENGTH, Split, Users, split
from tests.quality.bench.users import Learned as Clicked

WINDOW = 2_000
Pair = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Giving:
    """power: of the eigenvalues. share: of the own ranking, relative to the usual ratio; 0: none. backoff: 0:
    the same share for every query. raw: scores without norms."""

    power: float
    share: float
    familiar: float = FAMILIAR
    backoff: float = BACKOFF
    raw: bool = False

    @classmethod
    def of(cls, choice: FormChoice) -> Giving:
        """The same of a version."""
        return cls(choice.power, choice.own_share, choice.familiar, choice.backoff, choice.raw)

    @property
    def told(self) -> str:
        """What it is, in words."""
        if self.raw:
            return "raw scores"
        return f"power {self.power:g}, share {self.share}, power {self.backoff:g} from {self.familiar:g}"


TRIED = (
    Giving(1.5, 0.0),
    Giving(1.5, 0.3, 1.0, 0.0),
    Giving(1.5, 1.0, 1.0, 0.0),
    Giving(1.5, 0.3, 0.85, 12.0),
    Giving(1.5, 0.2, 0.8, 12.0),
    Giving(1.5, 1.0, 0.85, 12.0),
    Giving(1.0, 1.0, 0.85, 12.0),
    Giving(1.5, 0.2, 1.0, 4.0),
    Giving(1.5, 0.05, 1.5, 3.0),
    Giving(1.5, 0.1),
    Giving(1.5, 0.15, 1.1),
    Giving(1.5, 0.1, 1.5, 2.0),
    Giving(1.5, 0.3),
    Giving(1.0, 0.3),
    Giving(1.0, 0.0, raw=True),
)


class Learned:
    """What lists taught, and its forms. apart, share: see `Users`. weigh: how much each triplet counts,
    float64 [n]; None: one as much as another."""

    def __init__(
        self,
        data: RawSet,
        who: Split,
        clicks: str,
        seed: int,
        apart: npt.NDArray[np.bool_] | None = None,
        share: float | None = None,
        weigh: Callable[[Clicked], npt.NDArray[np.float64]] | None = None,
    ) -> None:
        self._data, self._weigh = data, weigh
        self.space: Space = mapped(data, "precondition")
        several = len(data.views) > 1
        self._how = Learning("identity" if several else "mean")
        self._users, self._lists = Users(data, clicks, seed, who, apart, share), 0
        self.W: Floats = self.space.first(self._how.start)
        self.asked = np.zeros(0, np.int64)
        self.held, self.held_clicks = np.zeros((0, 1 + LENGTH), np.int64), np.zeros((0, LENGTH), bool)

    def go_on(self, lists: int, made: Ints | None = None) -> None:
        """Learn from lists up to that number; made: of each row, int64 [n, LENGTH], None: the own ones."""
        shown_now = own_lists(self._data.name) if made is None else made
        part = self._users.look(shown_now, lists - self._lists)
        bounds = self._how.bounds(part.drawn)
        if self._weigh is not None:
            bounds *= self._weigh(part)
        self.W = step(self.W, self.space, part.rows, bounds)
        self.asked, self._lists = np.union1d(self.asked, part.rows[0]), lists
        self.held = np.concatenate([self.held, part.held])
        self.held_clicks = np.concatenate([self.held_clicks, part.held_clicks])

    def form(self, how: Giving) -> FoldingForm:
        """The product's form of what was learned."""
        if how.raw:
            return replace(ServingForm.from_matrix(self.W, power=1.0), normalised=False)
        learned = ServingForm.from_matrix(self.W, power=how.power)
        if not how.share:
            return learned
        usual = usual_ratio(learned, self.space.metric, self.space.Z[self.asked])
        made = BackoffForm.beside(learned, self.space.metric, how.share, usual)
        return BackoffForm(learned, made.own, how.share, how.familiar, how.backoff)


def scores_of(form: FoldingForm, Z: Floats) -> Scores:
    """Scores of catalog rows with the catalog."""
    roots = inverse_roots(form.self_scores(Z)) if form.normalised else np.ones(len(Z), np.float32)

    def of(rows: Ints) -> Floats:
        return np.asarray(form.fold(Z[rows]) @ Z.T * roots)

    return of


def measured(
    name: str, lists: list[int], queries: int, tried: tuple[Giving, ...] = TRIED, clicks: str = "position"
) -> Iterator[tuple[int, Giving, dict[str, Pair]]]:
    """(lists, form, kinds of queries -> [mAP, P@10] minus the owner's ranking)."""
    data, who = load(name), split(load(name), 0, kinds=True)
    learned, own = Learned(data, who, clicks, 0), own_scores(data.joined())
    rows = {"clicked": some(who.judged, queries), "never clicked": some(who.unseen, queries)}
    before = {kind: np.array(judge(own, data.labels, one).pair) for kind, one in rows.items()}
    for count in lists:
        learned.go_on(count)
        for how in tried:
            scores = scores_of(learned.form(how), learned.space.Z)
            found = {kind: np.array(judge(scores, data.labels, one).pair) for kind, one in rows.items()}
            yield count, how, {kind: pair - before[kind] for kind, pair in found.items()}


def known(name: str, lists: int, clicks: str = "position") -> dict[str, Pair]:
    """How much queries have in common with what was learned at power 1.5, the median of those that asked
    being 1: queries that asked, others of their kinds, and those of kinds that never came."""
    data, who = load(name), split(load(name), 0, kinds=True)
    learned = Learned(data, who, clicks, 0)
    learned.go_on(lists)
    form = learned.form(Giving(1.5, 0.3))
    assert isinstance(form, BackoffForm)
    rows = {"asked": learned.asked, "clicked": who.judged, "never clicked": who.unseen}
    return {kind: form.known(learned.space.Z[one]) for kind, one in rows.items()}


def by_judgments(
    name: str, lists: list[int], queries: int, clicks: str = "position"
) -> Iterator[tuple[int, int, dict[str, Pair]]]:
    """(lists, place in `OFFERED` of what judged queries choose, as `measured` of the chosen form); a
    quarter of the kinds never comes. Chosen by `MOST_JUDGED` queries of all kinds, measured on others.
    """
    data, who = load(name), split(load(name), 0, kinds=True)
    learned, own, now = Learned(data, who, clicks, 0), own_scores(data.joined()), OFFERED.index(PLAIN)
    halves = {"clicked": who.judged, "never clicked": who.unseen}
    judged = some(np.concatenate([half[::2] for half in halves.values()]), MOST_JUDGED)
    rows = {kind: some(half[1::2], queries) for kind, half in halves.items()}
    before = {kind: np.array(judge(own, data.labels, one).pair) for kind, one in rows.items()}
    for count in lists:
        learned.go_on(count)
        forms = [learned.form(Giving.of(one)) for one in OFFERED]
        scores = [scores_of(form, learned.space.Z) for form in forms]
        precision = [judge(one, data.labels, judged).ap for one in scores]
        zero, first = judge(own, data.labels, judged).ap, forms[OFFERED.index(DEFAULT_FORM)]
        assert isinstance(first, BackoffForm)
        far = first.known(learned.space.Z[judged]) < FAR
        now = choose_by_judgments(
            now,
            [
                Compared(
                    Preference.of((one - precision[now]).tolist()), Preference.of((one - zero)[far].tolist())
                )
                for one in precision
            ],
        )
        pairs = {
            kind: np.array(judge(scores[now], data.labels, one).pair) - before[kind]
            for kind, one in rows.items()
        }
        yield count, now, pairs


def some(rows: Ints, count: int) -> Ints:
    """At equal distances, at most so many."""
    return rows[:: max(1, len(rows) // count)][:count]


def main() -> None:
    """Print the lines of all forms."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.backoff", description=__doc__)
    parser.add_argument("set", choices=[name for name in SETS if name != "tfidf"])
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--lists", type=int, nargs="+", default=[2_000, 8_000])
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--known", action="store_true", help="how much queries have in common instead")
    parser.add_argument("--judged", action="store_true", help="what judged queries choose instead")
    asked = parser.parse_args()
    if asked.judged:
        for count, taken, pairs in by_judgments(asked.set, asked.lists, asked.queries, asked.clicks):
            found = ", ".join(f"{kind} {ap:+.3f} / {p10:+.3f}" for kind, (ap, p10) in pairs.items())
            print(f"{asked.set}, {count:,} lists: {OFFERED[taken].told}: {found}", flush=True)
        return
    if asked.known:
        for count in asked.lists:
            in_common = known(asked.set, count, asked.clicks)
            for kind, values in in_common.items():
                tenths = " / ".join(f"{one:.2f}" for one in np.quantile(values, [0.1, 0.5, 0.9]))
                print(f"{asked.set}, {count:,} lists, {kind}: {tenths}")
            above = np.searchsorted(np.sort(in_common["never clicked"]), in_common["clicked"]).mean()
            print(f"area under the curve {above / len(in_common['never clicked']):.2f}")
        return
    for count, how, pairs in measured(asked.set, asked.lists, asked.queries, clicks=asked.clicks):
        found = ", ".join(f"{kind} {ap:+.3f} / {p10:+.3f}" for kind, (ap, p10) in pairs.items())
        print(f"{asked.set}, {count:,} lists, {how.told}: {found}", flush=True)


if __name__ == "__main__":
    main()
