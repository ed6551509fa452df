"""Which arm orders given lists best, and whether it orders them better than the user's own ranking: a pure
fold over bets (docs/decisions/085).

The candidates are the arms of a version with each of `OWN_SHARES` of the user's own ranking beside, and its
serving form (`FORM`), which cannot lead before a version is shown to search. Each bets on every list before
it is learned from (`Duel`):

- Is any of them better than the user's own ranking? The mean of their capitals is the capital against "none
  is". Then a candidate leads: of those within the error of the one with the largest lower bound, the arm that
  comes first, with the share that has the largest lower bound.
- Is another candidate better than the one that leads? It takes the lead when it is ahead by more than the
  error of the comparison since the last change, and is above the user's own ranking itself.
- Does the leader still hold against the user's own ranking? Where it surely does not, nobody leads, and the
  next proof has half of the error left.

Bets are balanced per pair of ranks (`daemon.validate.preferences.balanced`). Capital remembers all of them;
means and errors forget, since what learns gets better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeAlias

import numpy as np
from pydantic import BeforeValidator, PlainSerializer

from daemon.validate.betting import FALSE_ALARM_BETS, UNTOUCHED, Doubles, Logged
from daemon.versions.order import OrderChoice

OWN_SHARES: Final = (0.0, 1.0, 3.0, 10.0)
"""Shares of the user's own ranking that are tried with each arm, which begins from that ranking. After few
lists a large one is best (3 and 10 on the first 2,000 of Wikispeedia), after many a small one (0 and 1 on
73,000, 0 on votes between two materials)."""
ERRORS = 1.0
"""Standard errors below the mean by which candidates are compared."""
MEMORY = 1_000.0
"""Bets after which a difference weighs 1 / e in means and errors."""

SPREAD: Final = 3.0
"""Deviations at which a bet is cut. Differences of two rankings are small (.05 to .2): bets on them as they
are would stake too little."""


def standardized(values: Doubles, bets: float, squares: float) -> Doubles:
    """Each difference over `SPREAD` deviations of those before it, cut to [-1, 1], float64 [n]: predictable,
    and a mean of 0 stays 0 but for what is cut. bets, squares: how many came before, and the sum of their
    squares."""
    sums = np.cumsum(np.concatenate([[squares], values * values]))[:-1]
    deviations = np.sqrt((sums + 0.25) / (bets + np.arange(len(values)) + 1.0))
    return np.clip(values / (SPREAD * deviations), -1.0, 1.0)


ArmShare = tuple[str, float]
"""The name of an arm, and the share of the user's own ranking."""
FORM: Final[ArmShare] = ("", 0.0)
"""The candidate that is the serving form of a version, behind all arms."""


@dataclass(frozen=True, slots=True)
class Duel:
    """Bets that the mean of differences in [-1, 1] is above 0, or below. bets, total, squares: how many
    differences, their sum and the sum of their squares, each weighing less with time. capital: of the
    bets."""

    bets: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    capital: Logged = UNTOUCHED

    @property
    def mean(self) -> float:
        """Of the differences; 0 without any."""
        return self.total / self.bets if self.bets else 0.0

    @property
    def lower(self) -> float:
        """The mean less `ERRORS` standard errors of it."""
        variance = (self.squares + 0.0025) / (self.bets + 1.0)
        return self.mean - ERRORS * math.sqrt(variance / (self.bets + 1.0))

    def take(self, differences: Sequence[float], sign: int = 1) -> Duel:
        """Bet on further differences, in order; sign: -1 bets that their mean is below 0."""
        values = np.asarray(differences, np.float64)
        stakes = standardized(values, self.bets, self.squares)
        weights = np.exp(-np.arange(len(values) - 1, -1, -1) / MEMORY)
        rest = math.exp(-len(values) / MEMORY)
        return Duel(
            self.bets * rest + float(weights.sum()),
            self.total * rest + float((weights * values).sum()),
            self.squares * rest + float((weights * values * values).sum()),
            self.capital.bets(sign * stakes),
        )


Duels: TypeAlias = Annotated[
    Mapping[ArmShare, Duel],
    BeforeValidator(lambda rows: {tuple(name): duel for name, duel in rows}),
    PlainSerializer(lambda duels: list(duels.items()), return_type=list[tuple[ArmShare, Duel]]),
]
"""Of each candidate; JSON is a list of pairs."""


@dataclass(frozen=True, slots=True)
class OrderBets:
    """What lists say that were not bet on before, differences in [-1, 1] in order of time, one per query.
    own: of each candidate of the version that is judged against the user's own ranking, also where no list
    tells. lead: of each against the leader, if there is one. top: as in `OrderChoice`, by these lists; 0
    without any."""

    own: Mapping[ArmShare, Sequence[float]] = field(default_factory=dict)
    lead: Mapping[ArmShare, Sequence[float]] = field(default_factory=dict)
    top: int = 0
    higher: Mapping[ArmShare, float] = field(default_factory=dict)

    def after(self, earlier: OrderBets) -> OrderBets:
        """These after earlier ones, of the candidates of these."""
        own = {name: [*earlier.own.get(name, ()), *bets] for name, bets in self.own.items()}
        lead = {name: [*earlier.lead.get(name, ()), *self.lead.get(name, ())] for name in own}
        return OrderBets(own, lead, self.top or earlier.top, self.higher)


NO_BETS: Final = OrderBets()


@dataclass(frozen=True, slots=True)
class RaceStanding:
    """All that is known of the candidates. own: bets that each is better than the user's own ranking. lead:
    that each is worse than the leader, since that leads. leader: None while nobody is surely better than the
    user's own ranking. hold: bets against the leader that begin again at 1 wherever they fall below
    (`Capital.restarting_bets`). falls: how often a leader lost to the user's own ranking. top: see
    `OrderChoice`."""

    own: Duels = field(default_factory=dict)
    lead: Duels = field(default_factory=dict)
    leader: ArmShare | None = None
    hold: Logged = UNTOUCHED
    falls: int = 0
    top: int = 1

    @property
    def choice(self) -> OrderChoice | None:
        """The arm that orders lists; None: none is shown to be better than the user's own ranking and the
        serving form."""
        return None if self.leader in (None, FORM) else OrderChoice(*self.leader, self.top)

    def take(self, bets: OrderBets, alpha: float, reach: bool = False) -> RaceStanding:
        """The standing after further bets; alpha: the error of all that this race ever says. reach: whether
        versions search by their form, which leads only then: else arms have to order what is given."""
        own = {name: self.own.get(name, Duel()).take(values) for name, values in bets.own.items()}
        now = replace(self, own=own, top=bets.top or self.top)
        running = own if reach else {name: duel for name, duel in own.items() if name != FORM}
        if self.leader is not None and self.leader not in running:  # its arm is gone
            now = replace(now, leader=None, lead={}, hold=UNTOUCHED)
        if now.leader is None:
            capital = log_mean([duel.capital.log for duel in running.values()])
            ahead = [name for name, duel in running.items() if duel.lower > 0]
            proven = ahead and capital >= -math.log(alpha / 2**self.falls)
            return now._led_by(_first(ahead, own)) if proven else now
        hold = self.hold.restarting_bets([-value for value in bets.own[now.leader]])
        if hold.log >= math.log(FALSE_ALARM_BETS):
            return RaceStanding({name: Duel() for name in own}, falls=self.falls + 1, top=now.top)
        lead = {
            name: self.lead.get(name, Duel()).take(bets.lead.get(name, ()), sign=-1)
            for name in own
            if name != now.leader
        }
        now = replace(now, lead=lead, hold=hold)
        better = [name for name in lead if name in running and min(lead[name].lower, own[name].lower) > 0]
        return now._led_by(max(better, key=lambda name: (lead[name].lower, name))) if better else now

    def dropped(self, alpha: float) -> tuple[str, ...]:
        """Arms of which every candidate is surely worse than the leader, which is of another arm."""
        if self.leader is None:
            return ()
        enough = -math.log(alpha / 2**self.falls / max(1, len(self.own)))
        worse = {name for name, duel in self.lead.items() if duel.capital.log >= enough}
        keep = {self.leader[0], FORM[0], *(name[0] for name in self.own if name not in worse)}
        return tuple(sorted({name for name, _ in self.own} - keep))

    def _led_by(self, name: ArmShare) -> RaceStanding:
        return replace(self, leader=name, lead={}, hold=UNTOUCHED)


def _first(names: Sequence[ArmShare], duels: Mapping[ArmShare, Duel]) -> ArmShare:
    """Of candidates in the order of their arms, see above."""
    least = max(duels[name].lower for name in names)
    arm = next(name[0] for name in names if duels[name].mean >= least)
    return max((name for name in names if name[0] == arm), key=lambda name: duels[name].lower)


def log_mean(logs: Sequence[float]) -> float:
    """Logarithm of the mean of what these are logarithms of; -inf without any."""
    return float(np.logaddexp.reduce(logs) - math.log(len(logs))) if logs else -math.inf


NO_RACE: Final = RaceStanding()
