"""How the similarities of m kernels are weighed into one: f = sum_i theta_i S_i.

Hedge over kernels is from Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search,
TPAMI 36 (2014), section 4.2; fixed share from Herbster and Warmuth: Tracking the best expert, Machine
Learning 32 (1998); kernels that sleep from Freund, Schapire, Singer, Warmuth: Using and combining predictors
that specialize, STOC 1997.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.errors import ConfigError, StateError, require_number, require_positive, require_whole, saved
from learners.kernels.omks_blocks import DISCOUNT, FIXED, HEDGE, MARGINS, SHARE
from learners.merge import MergeRule

Rule: TypeAlias = Literal["hedge", "share", "discount", "margins", "uniform", "given"]

CODES: dict[str, int] = {
    "hedge": HEDGE,
    "share": SHARE,
    "discount": DISCOUNT,
    "margins": MARGINS,
    "uniform": FIXED,
    "given": FIXED,
}
"""The rules, as kernels know them."""

BY_BETA = ("hedge", "share", "discount")
"""The rules by which a mistake costs a factor beta."""


@dataclass(frozen=True, slots=True)
class HedgeConfig:
    """How kernels are weighed. z_i = 1 where kernel i has a margin <= 0 before its step, else 0. Rounding
    decides where clicked and skipped tie but differ, as two vectors of one direction do under the cosine.

    rule: "hedge", as printed, theta_i <- theta_i beta^{z_i}: on a long stream it ends with all weight on one
    kernel. "share", the same and then every weight gives the share away evenly: theta <- (1 - share) theta +
    share mean(theta), so that none is lost for ever. "discount", theta_i = beta^{L_i} with the discounted
    count of mistakes L_i <- discount L_i + z_i. "margins", a passive-aggressive step on the m margins M:
    theta <- max(0, theta + min(C, l / ||M||^2) M), l = max(0, 1 - theta M). "uniform", 1/m (OMKS-U). "given":
    `weights` as they are (OMKS-W, theta_i = exp(mAP_i)).
    beta: in (0, 1), best near `best_beta`; the default is that of 36 kernels and 36,000 rounds. horizon: T,
    how many rounds there will be, where that is known: beta is `best_beta` of it then, and the other is not
    looked at; 0 where it is not.
    share: in [0, 1]. discount: in (0, 1]. C: > 0. weights: not negative, not all 0, one per kernel.
    Raises ConfigError.
    """

    rule: Rule = "share"
    beta: float = 0.99
    share: float = 1e-3
    discount: float = 0.999
    C: float = 0.1
    weights: tuple[float, ...] = ()
    horizon: int = 0

    def __post_init__(self) -> None:
        if self.rule not in CODES:
            raise ConfigError(f"rule must be one of {', '.join(CODES)}, not {self.rule!r}")
        for name in ("beta", "share", "discount"):
            require_number(name, getattr(self, name))
        for weight in self.weights:
            require_number("each of weights", weight)
        if not 0 < self.beta < 1:
            raise ConfigError(f"beta must lie between 0 and 1, not {self.beta}")
        if not 0 <= self.share <= 1:
            raise ConfigError(f"share must lie in 0..1, not {self.share}")
        if not 0 < self.discount <= 1:
            raise ConfigError(f"discount must be above 0 and at most 1, not {self.discount}")
        require_positive("C", self.C)
        require_whole("horizon", self.horizon)
        if self.horizon < 0:
            raise ConfigError(f"horizon must be 0 (unknown) or a number of rounds, not {self.horizon}")
        if self.horizon and self.rule not in BY_BETA:
            raise ConfigError(f'horizon belongs to {", ".join(BY_BETA)}, not to "{self.rule}"')
        if self.rule == "given" and not self.weights:
            raise ConfigError('"given" needs weights, one number per kernel, such as weights = [2.5, 2.4]')
        if self.weights and self.rule != "given":
            raise ConfigError(f'weights belong to the rule "given", not to "{self.rule}"')
        if self.weights and not (
            all(math.isfinite(w) and w >= 0 for w in self.weights) and any(self.weights)
        ):
            raise ConfigError(f"weights must be finite, not negative and not all 0, not {self.weights}")

    def kernel_settings(self, kernels: int) -> tuple[int, float, float]:
        """(rule, ln beta, rate) as `learners.kernels.omks_blocks.weigh` takes them, of so many kernels."""
        beta = best_beta(self.horizon, kernels) if self.horizon else self.beta
        rates = {"share": self.share, "discount": self.discount, "margins": self.C}
        return CODES[self.rule], math.log(beta), rates.get(self.rule, 0.0)


def best_beta(rounds: int, kernels: int) -> float:
    """sqrt(T) / (sqrt(T) + sqrt(ln m)), which minimises the mistake bound of T rounds over m kernels."""
    return math.sqrt(rounds) / (math.sqrt(rounds) + math.sqrt(math.log(kernels)))


def first_standing(config: HedgeConfig, kernels: int) -> NDArray[np.float64]:
    """The standing of each kernel before any event, float64 [m]: theta itself under "margins", else ln theta.

    It is the state to keep: log weights never underflow however long the stream. Raises ConfigError when
    another number of weights is given.
    """
    if config.weights and len(config.weights) != kernels:
        raise ConfigError(f"{len(config.weights)} weights are given for {kernels} kernels: give one each")
    given = np.array(config.weights or (1.0,) * kernels, np.float64)
    shares: NDArray[np.float64] = given / given.sum()
    if config.rule == "margins":
        return shares
    with np.errstate(divide="ignore"):
        logs: NDArray[np.float64] = np.maximum(np.log(shares), -np.finfo(np.float64).max)
    return logs


def theta(config: HedgeConfig, standing: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights of the kernels, float64 [m], not negative and of sum 1 (or all 0: "margins" alone can lose
    them all, and finds them again at the next margin above 0)."""
    weights: NDArray[np.float64] = standing.copy()
    if config.rule != "margins":
        weights = np.exp(standing - standing.max())
    total = weights.sum()
    return np.divide(weights, total if total > 0 else 1.0)


def merged_by(config: HedgeConfig) -> MergeRule:
    """How the standings of several learners are merged: multiplied as weights where nothing is forgotten, so
    that every mistake costs its factor; else their mean, of the weights themselves under "margins"."""
    if config.rule == "margins":
        return MergeRule.WEIGHT
    return MergeRule.LOG if config.rule == "hedge" else MergeRule.FADING


def read_standing(
    arrays: Mapping[str, NDArray[Any]], config: HedgeConfig, kernels: int
) -> NDArray[np.float64]:
    """The array `standing` of a saved state, copied; StateError when it does not fit."""
    standing = saved(arrays, "standing", np.float64, (kernels,))
    if config.rule == "margins" and (standing < 0).any():
        raise StateError("array standing holds a weight below 0")
    return np.array(standing)
