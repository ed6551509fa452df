"""What the evidence so far says, and what follows for `best`: a pure fold over judgements, by always-valid
tests (`daemon.validate.betting`; docs/decisions/037).

Each held-out list is bet on once, by the newest version at the time, against version 0 (the ranking that
users had) and against the *anchor*: the last version that was surely better than the anchor before it, and
version 0 at first. A list that is learned from is bet on by a version from before it. What a version has
learned so has every later one: each list that is bet on was learned by nobody who bet before.

- **Superior** to the anchor: the version becomes best, and the anchor of what comes.
- Once the anchor is above version 0, `best` follows the newest version that nothing shows to be inferior to
  it or to the anchor: steps that are too small to be proven one by one add up.
- **Inferior** to version 0: what is best is bet against too. Where it loses, `best` goes back to version 0,
  and the next proof has half of the error left.
- **Equivalent** or **inferior** to the anchor, or held back by a guard: what patience counts. "Not yet" never
  counts.

How given lists are ordered is a question of its own (`daemon.validate.race`), with a part of the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from daemon.validate.betting import (
    FALSE_ALARM_BETS,
    NOTHING_SEEN,
    UNTOUCHED,
    Finding,
    Logged,
    PairedTest,
)
from daemon.validate.race import NO_BETS, NO_RACE, OrderBets, RaceStanding
from daemon.versions.verdict import ByClicks, PlainAnswer, SourceShare, by_clicks

Positions = dict[int, int]


ORDER_SHARE = 0.5
"""Of the error, what the race for the order of given lists may spend; the rest is for versions that
search."""


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """alpha: probability that something is promoted over version 0 while nothing is better. horizon: bets
    that are to tell a difference from none, the size of the window.
    """

    alpha: float
    horizon: int


class Bettor(NamedTuple):
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
    `Capital.restarting_bets`. falls: how often `best` went back. lists: lists taken; interleaved: those of
    them that two versions made together; trained: those that were learned from later. through: holdout
    positions up to which those that were held out are taken; bettor: up to when the others are. race: of the
    candidates for the order of given lists.
    """

    anchor: int = 0
    line: PairedTest = NOTHING_SEEN
    step: PairedTest = NOTHING_SEEN
    lead: PairedTest = NOTHING_SEEN
    hold: Logged = UNTOUCHED
    falls: int = 0
    lists: int = 0
    interleaved: int = 0
    through: Positions = field(default_factory=dict)
    trained: int = 0
    bettor: Bettor = field(default_factory=Bettor)
    race: RaceStanding = NO_RACE

    def alpha(self, rule: EvidenceRule) -> float:
        """The error of the next proof: halved by each fall, so that all have twice `rule.alpha` at most;
        less what the race for the order of given lists may spend."""
        share = 1.0 - ORDER_SHARE if self.race.own else 1.0
        return float(share * rule.alpha / 2**self.falls)

    def anchored(self, version: int) -> Standing:
        """With another anchor, that nothing was compared with yet."""
        return replace(self, anchor=version, step=NOTHING_SEEN, lead=NOTHING_SEEN)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a ledger entry."""
        return dict(_JSON.dump_python(self, mode="json"))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Standing:
        """The inverse; what it lacks is as at first. TypeError or ValueError for anything else."""
        return _JSON.validate_python(found)


_JSON = TypeAdapter(Standing)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One version, compared on the window: differences in [-1, 1] in order of time, one per query.

    fresh, fresh_anchor: of the lists not bet on before, against version 0 and the anchor. fresh_best: of the
    best version against version 0 there. fresh_lead: of what was learned later against the best version, by
    lists that both made. window_best: of all lists, against the best version. order: of the candidates for
    the order of given lists. lists: how many are not bet on before, through: up to where; interleaved: how
    many of them two versions made together, so that their teams tell; trained: how many of them were learned
    from later, and bet on by a version before. bettor: which bets on such lists next, None: the same. silent:
    how many are so near to the served version that they cannot tell the two apart. higher, higher_best: share
    of the lists of the window in which clicked objects stand higher than in version 0, under the version and
    under the best one; None where no list tells. away: what is two clicks away, against version 0, by query;
    of forms that do not give way to the user's own ranking.
    """

    fresh: Sequence[float]
    fresh_anchor: Sequence[float]
    fresh_best: Sequence[float]
    window_best: Sequence[float]
    lists: int
    through: Positions
    interleaved: int = 0
    fresh_lead: Sequence[float] = ()
    silent: int = 0
    trained: int = 0
    bettor: Bettor | None = None
    higher: float | None = None
    higher_best: float | None = None
    order: OrderBets = NO_BETS
    away: Sequence[float] = ()
    strongest: SourceShare | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a judgement amounts to. found: against the anchor as it was. guards: what keeps the version from
    being best. promoted: it becomes best, or stays it. fell: the best version goes back to version 0. reach:
    whether a version that is promoted searches the catalog; else it re-ranks what the user's own ranking
    finds.
    """

    found: Finding
    guards: tuple[str, ...] = ()
    promoted: bool = False
    fell: bool = False
    reach: bool = True

    @property
    def decided(self) -> bool:
        """Whether there was evidence, for or against. Of a version that only orders lists nothing says that
        its arms have stopped learning."""
        if self.promoted and not self.reach:
            return False
        return self.found != "not yet" or bool(self.guards) or self.fell

    @property
    def improved(self) -> bool:
        """Whether learning has surely gone on."""
        return self.promoted and self.reach and self.found == "superior"


def weigh(
    standing: Standing, rule: EvidenceRule, version: int, best: int, seen: Comparison
) -> tuple[Standing, Conclusion]:
    """The standing after `version` was judged, and what follows. best: the best version before, 0: none.

    Where there are candidates for the order of given lists they have a part of the error (`ORDER_SHARE`). A
    version that is not shown to search better is best all the same while something leads there; it does not
    search then.
    """
    race = standing.race.take(seen.order, ORDER_SHARE * rule.alpha, bool(standing.anchor))
    led = standing.race.choice
    searching = best if standing.anchor else 0
    hold = standing.hold.restarting_bets([-difference for difference in seen.fresh_best])
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
        race=race,
    )
    found, ahead = now.step.found(now.alpha(rule)), now.lead.found(now.alpha(rule))
    if ahead == "superior" and found != "inferior":
        found = ahead
    if searching and hold.log >= math.log(FALSE_ALARM_BETS):
        after = Standing(falls=now.falls + 1, through=now.through, bettor=now.bettor, race=race)
        return after, Conclusion(found, fell=True)
    guards = []
    if is_inferior(seen.away, rule):
        guards.append("what is two clicks away ranks lower than in your ranking")
    if searching and is_inferior(seen.window_best, rule):
        guards.append(f"users prefer the order of version {best}")
    if ahead == "inferior":
        guards.append(f"in interleaved lists users prefer what was best before, such as version {best}")
    if guards or found == "inferior" or (found != "superior" and not now.anchor):
        if now.anchor:
            return now, Conclusion(found, tuple(guards))
        fell = led is not None and race.choice is None and best > 0
        return now, Conclusion(found, tuple(guards), race.choice is not None, fell, reach=False)
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
        line = standing.line
        higher = self.higher
        if seen is not None and served and not outcome.promoted:
            higher = seen.higher_best
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
                guards=outcome.guards,
                missing=lists_missing(standing, rule),
                order="" if standing.race.choice is None else standing.race.choice.description,
                top=standing.race.top,
                reach=bool(standing.anchor),
                alpha=rule.alpha,
                silent=(served or self.version) if seen is not None and seen.silent else 0,
                promoted=outcome.promoted,
                strongest=None if seen is None else seen.strongest,
            )
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in the entry's measures."""
        strongest = None if self.seen is None else self.seen.strongest
        return {
            **asdict(self.outcome),
            "guards": list(self.outcome.guards),
            "verdict": self.verdict,
            "alpha": self.rule.alpha,
            "lists_missing": lists_missing(self.standing, self.rule),
            "standing": self.standing.to_json(),
            **({} if strongest is None else {"strongest_source": asdict(strongest)}),
        }

    @property
    def higher(self) -> float | None:
        """Share of the lists in which clicked objects stand higher than in version 0, as the version answers:
        by its order where it does not search, else by its form. None where no list tells."""
        if self.seen is None:
            return None
        leader = self.standing.race.leader
        if self.outcome.promoted and not self.outcome.reach and leader is not None:
            return self.seen.order.higher.get(leader)
        return self.seen.higher
