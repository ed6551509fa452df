"""Always-valid tests of a mean, by betting. Pure.

A bettor against "the mean of the differences is at most 0" multiplies its capital by `1 + stake * d` at each
difference d in [-1, 1]. Where that holds, the capital is a non-negative supermartingale that begins at 1, and
by Ville's inequality it ever reaches `1 / alpha` with probability `alpha` at most, however often one looks
(Waudby-Smith and Ramdas, JRSS B 86, 2024, section 4). The best stake is not known beforehand, so that a share
of the capital (`SHARES`) is put on each of `STAKES`: the weighted mean is a capital again, in the log domain.
The state is a few numbers that are kept in the ledger, so that a test continues after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator

FALSE_ALARM_BETS = 50_000
"""Bets between two rollbacks of a best version that is no worse than version 0, on average or more."""

Doubles = npt.NDArray[np.float64]


def doubles(values: Iterable[float]) -> Doubles:
    """As an array, float64 [n]."""
    return np.fromiter(values, np.float64)


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

    def bets(self, gains: Doubles) -> Capital:
        """After further differences from the hypothesis' bound, at least -1, float64 [n], in order."""
        # along the first axis rows are added one after the other: the same bits however lists are cut
        grown = np.concatenate([[self.logs], np.log1p(gains[:, None] * STAKES)])
        return Capital(tuple(np.add.reduce(grown, axis=0).tolist()))

    def restarting_bets(self, gains: Iterable[float]) -> Capital:
        """As `bets`, but starting again at 1 wherever it has fallen below.

        It finds that a mean has changed (an e-detector by sums, Shin, Ramdas and Rinaldo 2023): while the
        hypothesis holds, 1 / alpha is reached after 1 / alpha bets on average, or later.
        """
        logs = np.array(self.logs)
        for gain in gains:
            logs = np.maximum(0.0, logs + np.log1p(STAKES * gain))
        return Capital(tuple(logs.tolist()))


UNTOUCHED: Final = Capital()


def _capital_of(logs: Sequence[float]) -> Capital:
    if len(logs) != len(STAKES):
        raise ValueError(f"a capital on {len(logs)} stakes instead of {len(STAKES)}")
    return Capital(tuple(float(one) for one in logs))


Logged: TypeAlias = Annotated[
    Capital, PlainValidator(_capital_of), PlainSerializer(lambda capital: list(capital.logs))
]
"""A capital whose JSON is the list of its logarithms."""


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
    above: Logged = UNTOUCHED
    below: Logged = UNTOUCHED
    not_below: Logged = UNTOUCHED
    not_above: Logged = UNTOUCHED

    @property
    def mean(self) -> float:
        """Of the differences; 0 without any."""
        return self.total / self.bets if self.bets else 0.0

    @property
    def variance(self) -> float:
        """Of the differences, with one of 1 more in their squares; 0 where all are 1, or -1."""
        return (self.squares + 1.0) / (self.bets + 1.0) - self.mean**2

    def margin(self, horizon: int) -> float:
        """What counts as no difference, at most 1."""
        return min(1.0, math.sqrt(MARGIN_FACTOR * self.variance / horizon))

    def take(self, differences: Iterable[float], horizon: int) -> PairedTest:
        """Bet on further differences, in order. ValueError for one outside of [-1, 1]."""
        values = doubles(differences)
        if not (np.abs(values) <= 1).all():
            raise ValueError("a difference is not in [-1, 1]")
        bets = self.bets + np.arange(len(values) + 1)
        totals = np.cumsum(np.concatenate([[self.total], values]))
        squares = np.cumsum(np.concatenate([[self.squares], values * values]))
        means = totals / np.maximum(bets, 1)
        variances = (squares + 1.0) / (bets + 1.0) - means * means
        margins = np.minimum(1.0, np.sqrt(MARGIN_FACTOR * variances[:-1] / horizon))
        return PairedTest(
            int(bets[-1]),
            float(totals[-1]),
            float(squares[-1]),
            self.above.bets(values),
            self.below.bets(-values),
            self.not_below.bets((values + margins) / (1 + margins)),
            self.not_above.bets((margins - values) / (1 + margins)),
        )

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
        short, square = -math.log(alpha) - self.above.log, (self.squares + 1.0) / (self.bets + 1.0)
        stake = min(float(STAKES[-1]), self.mean / square)
        growth = stake * self.mean - stake * stake * square / 2
        return max(0, math.ceil(short / growth))


NOTHING_SEEN: Final = PairedTest()
