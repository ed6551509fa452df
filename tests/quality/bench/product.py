"""What the product would serve after so many lists, with default settings: its learner's steps, the form that
every version has, the bets of `daemon.validate.comparing` and the standing of
`daemon.validate.evidence`, in the order in which the validator goes.

Versions are published after the numbers of lists of `VERSIONS`. Each is judged once, on the lists that `feed`
held out since the one before; that bets on those that were learned from since. So do the arms, which learn
most held-out lists too, for the order of given lists, which is what is served as long as a version is not
shown to search better: the first objects of the owner's ranking in another order. Left out are interleaved
lists and kinds that are held out as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy import sparse

from daemon.config.schema import ValidateConfig
from daemon.validate.comparing import told_by_order
from daemon.validate.evidence import Comparison, Conclusion, EvidenceRule, Standing, weigh
from daemon.validate.preferences import bets_of
from daemon.validate.race import NO_BETS, OrderBets
from daemon.validate.shown import Float
from daemon.versions.forms import DEFAULT_FORM, FormChoice
from tests.quality.bench.arms import Arms, reordered
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import mapped
from tests.quality.bench.judged import of_lists, shown
from tests.quality.bench.loop import Learner, Learning
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints, RawSet
from tests.quality.bench.users import Bools, Learned, Split, Users, joined
from tests.quality.bench.versions import Version

VERSIONS = (
    *range(250, 2_001, 250), 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000, 32_000,
    48_000, 64_000, 96_000, 128_000,
)  # fmt: skip
_DEFAULTS = ValidateConfig.model_validate({})
WINDOW = _DEFAULTS.window
LEAST_JUDGED = 50
"""As many lists are held out before any version is judged."""
RULE = EvidenceRule(_DEFAULTS.alpha, WINDOW)


@dataclass(frozen=True)
class Window:
    """Lists: query and objects, int64 [h, 1 + LENGTH], what was clicked, bool [h, LENGTH], and which were not
    bet on before, bool [h]."""

    lists: Ints
    clicks: Bools
    fresh: Bools

    @classmethod
    def last(cls, lists: Ints, clicks: Bools, taken: int) -> Window:
        """The newest `WINDOW` of them; taken: how many were bet on before."""
        kept = lists[-WINDOW:]
        return cls(kept, clicks[-WINDOW:], np.arange(len(lists) - len(kept), len(lists)) >= taken)

    @property
    def queries(self) -> Ints:
        """Each once."""
        return np.unique(self.lists[:, 0])

    def clustered(self, values: Float, where: Bools) -> list[float]:
        """One for each query, of those lists that tell something."""
        told = where & ~np.isnan(values)
        return bets_of(values[told], self.lists[told, 0].tolist())


@dataclass(frozen=True)
class Variant:
    """What may differ from the product. share: of queries held out, None: the default. form: of every
    version. untrained: lists that are learned from are bet on too, by the version before them. explored: see
    `Users`.
    """

    share: float | None = None
    form: FormChoice = DEFAULT_FORM
    untrained: bool = True
    explored: float = 0.0


AS_SHIPPED = Variant()


class Product:
    """Learns from lists and judges its versions. own: the owner's ranking."""

    def __init__(
        self,
        data: RawSet,
        clicks: str,
        seed: int,
        who: Split,
        how: Learning,
        variant: Variant = AS_SHIPPED,
        epsilon: float = 1.0,
    ) -> None:
        space = mapped(data, "precondition", epsilon=epsilon)
        self._Z: Floats = space.Z.toarray() if sparse.issparse(space.Z) else space.Z
        self._space = replace(space, Z=self._Z)
        self._users, self._variant = (
            Users(data, clicks, seed, who, None, variant.share, variant.explored),
            variant,
        )
        self.own = own_scores(self._Z if data.sparse else data.joined())
        self._learner, self.lists = Learner(self._space, how), 0
        self._parts: list[Learned] = []
        self._taken = self._taken_open = 0
        self._bets: OrderBets = NO_BETS
        self.standing, self.best, self.newest = Standing(), 0, 0
        self._scores: dict[int, Scores] = {0: self.own}
        self.arms = Arms(self._Z * np.sqrt(self._space.metric), seed)
        self.version = self._version()

    def _version(self) -> Version:
        made = self._learner
        return Version(made.W, self._Z, self._space.metric, made.familiarity)

    @property
    def learned(self) -> Learned:
        """All that lists gave so far."""
        self._parts = [joined(self._parts)]
        return self._parts[0]

    @property
    def served(self) -> Scores:
        """Of the best version, or the owner's, in another order where the best only orders."""
        choice = self.standing.race.choice
        if not self.best or self.standing.anchor or choice is None:
            return self._scores[self.best]
        order = self.arms.scores((choice.arm, choice.own_share))
        return lambda rows: reordered(self.own(rows), order(rows), rows, choice.top)

    @property
    def latest(self) -> Scores:
        """Of the newest version in its form."""
        return self._scores[self.newest]

    def go_on(self, count: int, lists: Ints) -> Conclusion:
        """Learn from lists up to that number, `lists` being what is shown; publish and judge a version."""
        part = self._users.look(lists, count - self.lists)
        leader, apart = self.standing.race.leader, self._users.apart[part.held[:, 0]]
        by_arms = (
            np.concatenate([part.open, part.held[~apart]]),
            np.concatenate([part.open_clicks, part.held_clicks[~apart]]),
        )
        asked = [self.arms.bets(*by_arms, self.latest, leader)] if self.lists else []
        self.arms.learn(*by_arms)
        self._parts.append(part)
        self._learner.take(part.rows, part.drawn)
        self.lists, self.newest = count, self.newest + 1
        self.version = self._version()
        learned, before = self.learned, self.newest - 1
        held = Window.last(learned.held, learned.held_clicks, self._taken)
        self._taken = len(learned.held) if len(learned.held) >= LEAST_JUDGED else 0
        choice = self.version.with_usual(self._variant.form, held.queries)
        self._scores[self.newest] = self.version.scores(choice)
        asked.append(self.arms.bets(part.held[apart], part.held_clicks[apart], self.latest, leader))
        opened = Window.last(learned.open, learned.open_clicks, self._taken_open)
        self._taken_open = len(learned.open)
        if not self._taken:
            self._bets = reduce(lambda before, one: one.after(before), asked, self._bets)
            return Conclusion("not yet")
        seen = self._compared(held, self.newest)
        if self._variant.untrained and before:
            first = self._compared(opened, before, like=opened.fresh)
            seen = replace(
                seen,
                fresh=[*first.fresh, *seen.fresh],
                fresh_anchor=[*first.fresh_anchor, *seen.fresh_anchor],
                lists=first.lists + seen.lists,
            )
        self._bets = reduce(lambda before, one: one.after(before), asked, self._bets)
        seen, self._bets = replace(seen, order=self._bets), NO_BETS
        self.standing, outcome = weigh(self.standing, RULE, self.newest, self.best, seen)
        self.best = 0 if outcome.fell else self.newest if outcome.promoted else self.best
        wanted = {0, self.newest, self.best, self.standing.anchor}
        self._scores = {number: one for number, one in self._scores.items() if number in wanted}
        return outcome

    def _compared(self, window: Window, version: int, like: Bools | None = None) -> Comparison:
        """As `comparing.compare`."""
        clicks, best, anchor = shown(window.clicks), self.best, self.standing.anchor
        scores: Mapping[int, Floats] = {
            one: of_lists(self._scores[one], window.lists) for one in {0, version, best, anchor}
        }

        def bets(one: int, other: int, where: Bools) -> list[float]:
            if one == other:
                return []
            return window.clustered(told_by_order(scores[one], scores[other], clicks, where, like), where)

        return Comparison(
            fresh=bets(version, 0, window.fresh),
            fresh_anchor=bets(version, anchor, window.fresh),
            fresh_best=bets(best, 0, window.fresh),
            window_best=bets(version, best, np.ones(len(window.fresh), bool)) if best else [],
            lists=int(window.fresh.sum()),
            through={0: self._taken},
        )
