"""What the evidence so far says, and what follows for `best`: a pure fold over judgements, by always-valid
tests.

Each held-out list is bet on once, by the newest version at the time, against version 0 (the ranking that
users had) and against the *anchor*: the last version that was surely better than the anchor before it, and
version 0 at first. So many versions cost nothing: there is one capital against "what was learned is no
better", and every version since the anchor adds to it. A list that is learned from is bet on by a version
from before it (prequential: test then train, Dawid 1984). Bets go from version to version, and what a version
has learned so has every later one: each list that is bet on was learned by nobody who bet before.

- **Superior** to the anchor: the version becomes best, and the anchor of what comes.
- Once the anchor is above version 0, `best` follows the newest version that nothing shows to be inferior to
  it or to the anchor: steps that are too small to be proven one by one add up.
- **Inferior** to version 0: what is best is bet against too. Where it loses, `best` goes back to version 0,
  and the next proof has half of the error left.
- **Equivalent** or **inferior** to the anchor, or held back by a guard: what patience counts. "Not yet" never
  counts.

Lists of one query that are judged together make one bet.

**The tests** are of a mean: capital that grows only where a hypothesis is false, in the log domain. A bettor
against "the mean of the differences is at most 0" multiplies its capital by `1 + stake * d` at each
difference d in [-1, 1]. Where the hypothesis holds, the capital is a non-negative supermartingale that begins
at 1, and by Ville's inequality it ever reaches `1 / alpha` with probability `alpha` at most, however often
one looks (Waudby-Smith and Ramdas, JRSS B 86, 2024, section 4). The best stake is not known beforehand, so
that a share of the capital (`SHARES`) is put on each of `STAKES`: the weighted mean is a capital again.

The state is a few numbers that are kept in the ledger, so that a test continues after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from daemon.versions.verdict import ByClicks, PlainAnswer, by_clicks

Positions = dict[int, int]

FALSE_ALARM_BETS = 50_000
"""Bets between two rollbacks of a best version that is no worse than version 0, on average or more."""

Doubles = npt.NDArray[np.float64]

STAKES: Final = np.array([0.025, 0.05, 0.1, 0.2, 0.4, 0.8])
"""Shares of the capital put on one difference. Of a mean `mu` and a variance `v` the best is about `mu / v`;
a factor of two from it costs a quarter of the growth, so that steps of two lose little. The largest stays
below 1, where one difference could ruin it.
"""
SHARES: Final = np.array([0.04, 0.06, 0.12, 0.22, 0.28, 0.28])
"""Of the capital that begins at 1, what is put on each stake. Differences of lists are small, and so are
their deviations (.06 to .2), so that large stakes are best wherever something is learned soon.
"""
ZERO: Final = (0.0,) * len(STAKES)

Finding = Literal["superior", "equivalent", "not yet", "inferior"]
"""What a test says of a mean: above 0, within the margin, nothing, below 0."""

MARGIN_FACTOR: Final = 12.0
"""Squared margin times horizon, over the variance. With a true mean of 0, capital against "at least the
margin" grows by margin^2 / 2 v a bet: after `horizon` of them by 6, which pays for 1 / .05 and for a stake
that is not known.
"""


def log_capital(logs: Doubles) -> Doubles:
    """Logarithm of the capital, float64[...]; logs: of what each stake has made of 1, [..., stakes]."""
    return np.asarray(np.logaddexp.reduce(logs + np.log(SHARES), axis=-1))


@dataclass(frozen=True, slots=True)
class Capital:
    """Logarithms of what each stake has made of 1, of one hypothesis; the capital is their weighted mean."""

    logs: tuple[float, ...] = ZERO

    @property
    def log(self) -> float:
        """Logarithm of the capital."""
        return float(log_capital(np.asarray(self.logs)))

    def bet(self, gain: float) -> Capital:
        """After one more difference from the hypothesis' bound, at least -1."""
        return Capital(tuple((self.logs + np.log1p(STAKES * gain)).tolist()))

    def restarting_bet(self, gain: float) -> Capital:
        """As `bet`, but starting again at 1 wherever it has fallen below.

        It finds that a mean has changed (an e-detector by sums, Shin, Ramdas and Rinaldo 2023): while the
        hypothesis holds, 1 / alpha is reached after 1 / alpha bets on average, or later.
        """
        return Capital(tuple(np.maximum(0.0, self.logs + np.log1p(STAKES * gain)).tolist()))


UNTOUCHED: Final = Capital()


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Bets on the mean of differences in [-1, 1], against four hypotheses: at most 0 (`above`), at least 0
    (`below`), at most -margin (`not_below`), at least margin (`not_above`).

    bets, total, squares: how many differences, their sum and the sum of their squares. The margin of a bet is
    of the differences before it: their deviation times sqrt(MARGIN_FACTOR / horizon), what `horizon` bets can
    tell from 0.
    """

    bets: int = 0
    total: float = 0.0
    squares: float = 0.0
    above: Capital = UNTOUCHED
    below: Capital = UNTOUCHED
    not_below: Capital = UNTOUCHED
    not_above: Capital = UNTOUCHED

    @property
    def mean(self) -> float:
        """Of the differences; 0 without any."""
        return self.total / self.bets if self.bets else 0.0

    @property
    def variance(self) -> float:
        """Of the differences, with one of 1 more: never 0."""
        return (self.squares + 1.0) / (self.bets + 1.0) - self.mean**2

    def margin(self, horizon: int) -> float:
        """What counts as no difference, at most 1."""
        return min(1.0, math.sqrt(MARGIN_FACTOR * self.variance / horizon))

    def take(self, differences: Iterable[float], horizon: int) -> PairedTest:
        """Bet on further differences, in order. ValueError for one outside of [-1, 1]."""
        now = self
        for difference in differences:
            now = now._bet(float(difference), horizon)
        return now

    def found(self, alpha: float) -> Finding:
        """The verdict at this error: each hypothesis that holds is given up with probability alpha at most,
        over all looks together.
        """
        enough = -math.log(alpha)
        if self.above.log >= enough and self.above.log >= self.below.log:
            return "superior"
        if self.below.log >= enough:
            return "inferior"
        if min(self.not_below.log, self.not_above.log) >= enough:
            return "equivalent"
        return "not yet"

    def missing(self, alpha: float) -> int | None:
        """About how many more bets "superior" would take if they continue at their average; None where they
        do not point there (the mean is less than half its deviation above 0).
        """
        if self.mean * self.mean * self.bets * 4 <= self.variance or self.mean <= 0:
            return None
        short = -math.log(alpha) - self.above.log
        stake = min(float(STAKES[-1]), self.mean / self.variance)
        growth = stake * self.mean - stake * stake * self.variance / 2
        return max(0, math.ceil(short / growth))

    def to_json(self) -> dict[str, Any]:
        """As it stands in a ledger entry."""
        return {
            "bets": self.bets,
            "total": self.total,
            "squares": self.squares,
            **{name: list(getattr(self, name).logs) for name in _CAPITALS},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse. KeyError, TypeError, ValueError for anything else."""
        capitals = {name: capital_of(found[name]) for name in _CAPITALS}
        return cls(int(found["bets"]), float(found["total"]), float(found["squares"]), **capitals)

    def _bet(self, difference: float, horizon: int) -> PairedTest:
        if not abs(difference) <= 1:
            raise ValueError(f"a difference of {difference} is not in [-1, 1]")
        margin = self.margin(horizon)
        return PairedTest(
            self.bets + 1,
            self.total + difference,
            self.squares + difference * difference,
            self.above.bet(difference),
            self.below.bet(-difference),
            self.not_below.bet((difference + margin) / (1 + margin)),
            self.not_above.bet((margin - difference) / (1 + margin)),
        )


NOTHING_SEEN: Final = PairedTest()

_CAPITALS = ("above", "below", "not_below", "not_above")


def capital_of(logs: Sequence[float]) -> Capital:
    """A capital from the ledger. ValueError for another number of stakes than there are."""
    if len(logs) != len(STAKES):
        raise ValueError(f"a capital on {len(logs)} stakes instead of {len(STAKES)}")
    return Capital(tuple(float(one) for one in logs))


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """alpha: probability that something is promoted over version 0 while nothing is better. horizon: bets
    that are to tell a difference from none, the size of the window.
    """

    alpha: float
    horizon: int


@dataclass(frozen=True, slots=True)
class Bettor:
    """The version that bets next on lists that are learned from, 0: none. until_ms: the newest event time
    that it or one before it had learned; only lists after it are bet on.
    """

    version: int = 0
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """All that is known since the last fall.

    line: the newest versions against version 0. step: against the anchor. lead: against what was best at the
    time, where that is neither, by interleaved lists alone. hold: against the best version, see
    `Capital.restarting_bet`. falls: how often `best` went back. lists: lists taken; interleaved: those of
    them that two versions made together; trained: those that were learned from later. through: holdout
    positions up to which those that were held out are taken; bettor: up to when the others are.
    """

    anchor: int = 0
    line: PairedTest = NOTHING_SEEN
    step: PairedTest = NOTHING_SEEN
    lead: PairedTest = NOTHING_SEEN
    hold: Capital = UNTOUCHED
    falls: int = 0
    lists: int = 0
    interleaved: int = 0
    through: Positions = field(default_factory=dict)
    trained: int = 0
    bettor: Bettor = Bettor()

    def alpha(self, rule: EvidenceRule) -> float:
        """The error of the next proof: halved by each fall, so that all have twice `rule.alpha` at most."""
        return float(rule.alpha / 2**self.falls)

    def anchored(self, version: int) -> Standing:
        """With another anchor, that nothing was compared with yet."""
        return replace(self, anchor=version, step=NOTHING_SEEN, lead=NOTHING_SEEN)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a ledger entry."""
        return {
            "anchor": self.anchor,
            "line": self.line.to_json(),
            "step": self.step.to_json(),
            "lead": self.lead.to_json(),
            "hold": list(self.hold.logs),
            "falls": self.falls,
            "lists": self.lists,
            "interleaved": self.interleaved,
            "through": {str(partition): offset for partition, offset in sorted(self.through.items())},
            "trained": self.trained,
            "bettor": [self.bettor.version, self.bettor.until_ms],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse. KeyError, TypeError or ValueError for anything else."""
        lead = found.get("lead")  # absent where an older release wrote it, as what stands last
        return cls(
            int(found["anchor"]),
            PairedTest.from_json(found["line"]),
            PairedTest.from_json(found["step"]),
            NOTHING_SEEN if lead is None else PairedTest.from_json(lead),
            capital_of(found["hold"]),
            int(found["falls"]),
            int(found["lists"]),
            int(found.get("interleaved", 0)),
            {int(partition): int(offset) for partition, offset in found["through"].items()},
            int(found.get("trained", 0)),
            Bettor(*map(int, found.get("bettor", ()))),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One version, compared on the window: differences in [-1, 1] in order of time, one per query.

    fresh, fresh_anchor: of the lists not bet on before, against version 0 and the anchor. fresh_best: of the
    best version against version 0 there. fresh_lead: of what was learned later against the best version, by
    lists that both made. window_best: of all lists, against the best version. away: what is two clicks away,
    against version 0. lists: how many are not bet on before, through: up to where; interleaved: how many of
    them two versions made together, so that their teams tell; trained: how many of them were learned from
    later, and bet on by a version before. bettor: which bets on such lists next, None: the same. silent: how
    many are so near to the served version that they cannot tell the two apart. barred: what else keeps the
    version from being best. higher, higher_best: share of the lists of the window in which clicked objects
    stand higher than in version 0, under the version and under the best one; None where no list tells.
    """

    fresh: Sequence[float]
    fresh_anchor: Sequence[float]
    fresh_best: Sequence[float]
    window_best: Sequence[float]
    away: Sequence[float]
    lists: int
    through: Positions
    interleaved: int = 0
    fresh_lead: Sequence[float] = ()
    silent: int = 0
    barred: tuple[str, ...] = ()
    trained: int = 0
    bettor: Bettor | None = None
    higher: float | None = None
    higher_best: float | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a judgement amounts to. found: against the anchor as it was. guards: what keeps the version from
    being best. promoted: it becomes best, or stays it. fell: the best version goes back to version 0.
    """

    found: Finding
    guards: tuple[str, ...] = ()
    promoted: bool = False
    fell: bool = False

    @property
    def decided(self) -> bool:
        """Whether there was evidence, for or against."""
        return self.found != "not yet" or bool(self.guards) or self.fell

    @property
    def improved(self) -> bool:
        """Whether learning has surely gone on."""
        return self.promoted and self.found == "superior"


def weigh(
    standing: Standing, rule: EvidenceRule, version: int, best: int, seen: Comparison
) -> tuple[Standing, Conclusion]:
    """The standing after `version` was judged, and what follows. best: the best version before, 0: none."""
    hold = standing.hold
    for difference in seen.fresh_best:
        hold = hold.restarting_bet(-difference)
    now = replace(
        standing,
        line=standing.line.take(seen.fresh, rule.horizon),
        step=standing.step.take(seen.fresh_anchor, rule.horizon),
        lead=standing.lead.take(seen.fresh_lead, rule.horizon),
        hold=hold,
        lists=standing.lists + seen.lists,
        interleaved=standing.interleaved + seen.interleaved,
        through=seen.through,
        trained=standing.trained + seen.trained,
        bettor=seen.bettor or standing.bettor,
    )
    found, led = now.step.found(now.alpha(rule)), now.lead.found(now.alpha(rule))
    if led == "superior" and found != "inferior":
        found = led
    if best and hold.log >= math.log(FALSE_ALARM_BETS):
        after = Standing(falls=now.falls + 1, through=now.through, bettor=now.bettor)
        return after, Conclusion(found, fell=True)
    guards = [*seen.barred]  # what says that the version is worse: all but the last on the whole window
    if is_inferior(seen.away, rule):
        guards.append("what is two clicks away ranks lower than in version 0")
    if best and is_inferior(seen.window_best, rule):
        guards.append(f"users prefer the order of version {best}")
    if led == "inferior":
        guards.append(f"in interleaved lists users prefer what was best before, such as version {best}")
    if guards or found == "inferior" or (found != "superior" and not now.anchor):
        return now, Conclusion(found, tuple(guards))
    if found == "superior":
        now = replace(now.anchored(version), hold=now.hold if version == best else UNTOUCHED)
    return now, Conclusion(found, promoted=True)


def is_inferior(differences: Sequence[float], rule: EvidenceRule) -> bool:
    """Whether the mean of a sample is surely below 0."""
    return NOTHING_SEEN.take(differences, rule.horizon).below.log >= -math.log(rule.alpha)


def lists_missing(standing: Standing, rule: EvidenceRule) -> int | None:
    """About how many more lists "superior" to version 0 takes, held out or bet on before they are learned
    from; None where nothing points there.
    """
    bets = standing.line.missing(standing.alpha(rule))
    if bets is None or not standing.line.bets:
        return None
    exact = bets * standing.lists / standing.line.bets
    digits = max(0, len(str(int(exact))) - 2)
    return int(math.ceil(exact / 10**digits) * 10**digits)


@dataclass(frozen=True, slots=True)
class Weighed:
    """A judgement by evidence: of `version` while `best` was best, and what is known after it. seen: what it
    was judged by, None for a best version that is carried over a RESUME.
    """

    version: int
    best: int
    standing: Standing
    outcome: Conclusion
    rule: EvidenceRule
    seen: Comparison | None = None

    @property
    def verdict(self) -> Finding:
        """What is known of the learned versions against version 0."""
        if self.outcome.fell:
            return "inferior"
        is_up = self.outcome.promoted or (self.best and self.best != self.version)
        return "superior" if is_up else self.outcome.found

    @property
    def answer(self) -> PlainAnswer:
        """The answer to "is it better for my users?"."""
        standing, rule, outcome, seen = self.standing, self.rule, self.outcome, self.seen
        served = self.version if outcome.promoted else self.best
        line, held = standing.line, () if seen is None else seen.barred
        higher = (
            None if seen is None else seen.higher_best if served and not outcome.promoted else seen.higher
        )
        return by_clicks(
            ByClicks(
                0 if outcome.fell else served,
                self.version,
                line.found(standing.alpha(rule)),
                proven=standing.anchor,
                fell=self.best if outcome.fell else 0,
                mean=line.mean,
                error=math.sqrt(line.variance / max(1, line.bets)),
                margin=line.margin(rule.horizon),
                higher=higher,
                lists=standing.lists,
                trained=standing.trained,
                drafted=standing.interleaved,
                guards=tuple(one for one in outcome.guards if one not in held),
                held=held,
                missing=lists_missing(standing, rule),
                reaches=seen is not None and is_inferior([-one for one in seen.away], rule),
                alpha=rule.alpha,
                silent=(served or self.version) if seen is not None and seen.silent else 0,
                promoted=outcome.promoted,
            )
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in the entry's measures."""
        return {
            **asdict(self.outcome),
            "guards": list(self.outcome.guards),
            "verdict": self.verdict,
            "alpha": self.rule.alpha,
            "lists_missing": lists_missing(self.standing, self.rule),
            "standing": self.standing.to_json(),
        }
