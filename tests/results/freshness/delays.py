"""When which model answers: moments at which answers are looked at, models of so long ago, and how long a
change takes to be learned. Pure.

A moment t with delay d is answered by the model that had learned from every list up to t - d, and from none
after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
DELAYS: Mapping[str, float] = {"0.3 s": 0.3, "1 minute": MINUTE, "1 hour": HOUR, "1 day": DAY}
RECOVERED = 0.9

Seconds = npt.NDArray[np.float64]
Model = TypeVar("Model")


@dataclass(frozen=True, order=True)
class Look:
    """taken: when the model was, at or before `moment`, when its answers are looked at; in seconds."""

    taken: float
    moment: float
    delay: float


def looks(moments: Sequence[float], delays: Sequence[float]) -> list[Look]:
    """Every moment with every delay, in the order in which models are taken."""
    return sorted(Look(moment - delay, moment, delay) for moment in moments for delay in delays)


def arrivals(per_minute: float, until: float, seed: int) -> Seconds:
    """Times of lists that come independently of each other (a Poisson process), ascending, from 0 to
    `until`."""
    rng = np.random.default_rng((seed, 6))
    count = int(rng.poisson(per_minute * until / MINUTE))
    return np.sort(rng.random(count) * until)


class DelayedModels(Generic[Model]):
    """Models by time: which one was there at an earlier time."""

    def __init__(self, first: Model) -> None:
        self._times, self._models = [-np.inf], [first]

    def keep(self, time: float, model: Model) -> None:
        """What is there from this time on; times ascend. Raises ValueError where they do not."""
        if time <= self._times[-1]:
            raise ValueError(f"a model of {time} s comes after one of {self._times[-1]} s")
        self._times.append(time)
        self._models.append(model)

    def at(self, time: float) -> Model:
        """The newest that was there; those before it are forgotten, so times asked for ascend. Raises
        ValueError for one that is forgotten."""
        place = int(np.searchsorted(self._times, time, side="right")) - 1
        if place < 0:
            raise ValueError(f"what was there at {time} s is forgotten")
        del self._times[:place], self._models[:place]
        return self._models[0]


def recovery(times: Sequence[float], values: Sequence[float], share: float = RECOVERED) -> float | None:
    """When a share of the way from the first to the final value is first reached, straight between two
    times; None where the final value is not above the first.

    times: since the change, ascending, in seconds. The final value is the mean of the last three, so that one
    lucky look does not decide.
    """
    first, final = values[0], float(np.mean(values[-3:]))
    if not final > first:
        return None
    wanted = first + share * (final - first)
    for place in range(1, len(values)):
        if values[place] >= wanted:
            before, rise = values[place - 1], values[place] - values[place - 1]
            return float(times[place - 1] + (times[place] - times[place - 1]) * (wanted - before) / rise)
    return None


def delayed(times: Sequence[float], values: Sequence[float], delay: float, until: float) -> float:
    """The mean over the first `until` seconds after a change of a curve that comes `delay` late: its first
    value until then, the last one after its end; straight between two times."""
    grid = np.linspace(0, until, 20_001)
    return float(np.interp(grid - delay, times, values).mean())
