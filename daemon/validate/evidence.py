"""What the evidence so far says, and what follows for `best`: a pure fold over judgements.

Each held-out list is bet on once, by the newest version at the time, against version 0 (the ranking that
users had) and against the *anchor*: the last version that was surely better than the anchor before it, and
version 0 at first. So many versions cost nothing: there is one capital against "what was learned is no
better", and every version since the anchor adds to it.

- **Superior** to the anchor: the version becomes best, and the anchor of what comes.
- Once the anchor is above version 0, `best` follows the newest version that nothing shows to be inferior to
  it or to the anchor: steps that are too small to be proven one by one add up.
- **Inferior** to version 0: what is best is bet against too. Where it loses, `best` goes back to version 0,
  and the next proof has half of the error left.
- **Equivalent** or **inferior** to the anchor, or held back by a guard: what patience counts. "Not yet" never
  counts.

Lists of one query that are judged together make one bet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from daemon.validate.betting import (
    NOTHING_SEEN,
    UNTOUCHED,
    Capital,
    Finding,
    PairedTest,
    capital_of,
)

Positions = dict[int, int]

FALSE_ALARM_BETS = 50_000
"""Bets between two rollbacks of a best version that is no worse than version 0, on average or more."""


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """alpha: probability that something is promoted over version 0 while nothing is better. horizon: bets
    that are to tell a difference from none, the size of the window.
    """

    alpha: float
    horizon: int


@dataclass(frozen=True, slots=True)
class Standing:
    """All that is known since the last fall.

    line: the newest versions against version 0. step: against the anchor. hold: against the best version, see
    `Capital.bet_anew`. falls: how often `best` went back. lists: held-out lists taken; interleaved: those of
    them that two versions made together. through: holdout positions up to which they are taken.
    """

    anchor: int = 0
    line: PairedTest = NOTHING_SEEN
    step: PairedTest = NOTHING_SEEN
    hold: Capital = UNTOUCHED
    falls: int = 0
    lists: int = 0
    interleaved: int = 0
    through: Positions = field(default_factory=dict)

    def alpha(self, rule: EvidenceRule) -> float:
        """The error of the next proof: halved by each fall, so that all together have twice `rule.alpha` at
        most.
        """
        return float(rule.alpha / 2**self.falls)

    def anchored(self, version: int) -> Standing:
        """With another anchor, that nothing was compared with yet."""
        return replace(self, anchor=version, step=NOTHING_SEEN)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a ledger entry."""
        return {
            "anchor": self.anchor,
            "line": self.line.to_json(),
            "step": self.step.to_json(),
            "hold": list(self.hold.logs),
            "falls": self.falls,
            "lists": self.lists,
            "interleaved": self.interleaved,
            "through": {str(partition): offset for partition, offset in sorted(self.through.items())},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse. KeyError, TypeError or ValueError for anything else."""
        return cls(
            int(found["anchor"]),
            PairedTest.from_json(found["line"]),
            PairedTest.from_json(found["step"]),
            capital_of(found["hold"]),
            int(found["falls"]),
            int(found["lists"]),
            int(found.get("interleaved", 0)),
            {int(partition): int(offset) for partition, offset in found["through"].items()},
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One version, compared on the window: differences in [-1, 1] in order of time, one per query.

    fresh, fresh_anchor: of the lists not bet on before, against version 0 and the anchor. fresh_best: of the
    best version against version 0 there. window_best: of all lists, against the best version. away: what is
    two clicks away, against version 0. lists: how many are not bet on before, through: up to where;
    interleaved: how many of them two versions made together, so that their teams tell. barred: what else
    keeps the version from being best.
    """

    fresh: Sequence[float]
    fresh_anchor: Sequence[float]
    fresh_best: Sequence[float]
    window_best: Sequence[float]
    away: Sequence[float]
    lists: int
    through: Positions
    interleaved: int = 0
    barred: tuple[str, ...] = ()


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
    standing: Standing,
    rule: EvidenceRule,
    version: int,
    best: int,
    seen: Comparison,
) -> tuple[Standing, Conclusion]:
    """The standing after `version` was judged, and what follows. best: the best version before, 0: none."""
    hold = standing.hold
    for difference in seen.fresh_best:
        hold = hold.bet_anew(-difference)
    now = replace(
        standing,
        line=standing.line.take(seen.fresh, rule.horizon),
        step=standing.step.take(seen.fresh_anchor, rule.horizon),
        hold=hold,
        lists=standing.lists + seen.lists,
        interleaved=standing.interleaved + seen.interleaved,
        through=seen.through,
    )
    found = now.step.found(now.alpha(rule))
    if best and hold.log >= math.log(FALSE_ALARM_BETS):
        return Standing(falls=now.falls + 1, through=now.through), Conclusion(found, fell=True)
    guards = (*seen.barred, *_guards(rule, best, seen))
    if guards or found == "inferior" or (found != "superior" and not now.anchor):
        return now, Conclusion(found, guards)
    if version != best:
        now = replace(now, hold=UNTOUCHED)
    return now.anchored(version) if found == "superior" else now, Conclusion(found, promoted=True)


def _guards(rule: EvidenceRule, best: int, seen: Comparison) -> tuple[str, ...]:
    """What says that the version is worse, each on the whole window."""
    found = []
    if is_inferior(seen.away, rule):
        found.append("what is two clicks away ranks lower than in version 0")
    if best and is_inferior(seen.window_best, rule):
        found.append(f"users prefer the order of version {best}")
    return tuple(found)


def is_inferior(differences: Sequence[float], rule: EvidenceRule) -> bool:
    """Whether the mean of a sample is surely below 0."""
    return NOTHING_SEEN.take(differences, rule.horizon).below.log >= -math.log(rule.alpha)


def is_better(standing: Standing, rule: EvidenceRule, best: int, version: int, outcome: Conclusion) -> str:
    """The answer to "is it better for my users?" after `version` was judged, with what is missing."""
    if outcome.fell:
        return f"no longer: version {best} has lost to your ranking (version 0), which is best again"
    if outcome.promoted:
        return f"yes: version {version} is better than your ranking (version 0), error at most {rule.alpha:g}"
    if best and best != version:
        why = "; ".join(outcome.guards) or "users prefer what came before it"
        return f"yes: version {best} is better than your ranking (version 0); not so the newest: {why}"
    drafted = f", {standing.interleaved:,} of them interleaved" if standing.interleaved else ""
    return f"{_why_not_yet(standing, rule, outcome)} ({standing.lists:,} held-out lists so far{drafted})"


def _why_not_yet(standing: Standing, rule: EvidenceRule, outcome: Conclusion) -> str:
    if outcome.guards:
        return f"no: {'; '.join(outcome.guards)}"
    if outcome.found == "inferior":
        return "no: users prefer your ranking (version 0) to what was learned"
    if outcome.found == "equivalent":
        return f"no: what was learned makes no difference that {rule.horizon:,} lists could show"
    missing = lists_missing(standing, rule)
    if missing is None:
        return "not known yet: nothing points to it"
    return f"not known yet: about {missing:,} more held-out lists are needed"


def lists_missing(standing: Standing, rule: EvidenceRule) -> int | None:
    """About how many more held-out lists "superior" to version 0 takes; None where nothing points there."""
    bets = standing.line.missing(standing.alpha(rule))
    if bets is None or not standing.line.bets:
        return None
    exact = bets * standing.lists / standing.line.bets
    digits = max(0, len(str(int(exact))) - 2)
    return int(math.ceil(exact / 10**digits) * 10**digits)
