"""Settings of the two SOML algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from learners.errors import ConfigError

EXTREME = 1e18
"""Largest constant, and the inverse of the smallest: no state of finite vectors overflows float64 then."""


@dataclass(frozen=True, slots=True)
class SomlTgConfig:
    """Settings of SOML-TG.

    eta: learning rate, > 0. lam: lambda, the weight of the L1 norm, >= 0: every violating round shrinks each
    coordinate by eta lam. The defaults are the paper's. Raises ConfigError.
    """

    eta: float = 1.0
    lam: float = 1e-5

    def __post_init__(self) -> None:
        _positive("eta", self.eta)
        _not_negative("lam", self.lam)


@dataclass(frozen=True, slots=True)
class SomlDaConfig:
    """Settings of SOML-DA.

    gamma: > 0, the weight of the strongly convex term: w grows as 1 / gamma. lam, rho: >= 0, the threshold of
    the mean subgradient below which a coordinate is 0 is lam + gamma rho / sqrt(t). rho and lam are the
    paper's; its gamma is 1e-4, for labels. Clicks are noisier and want a w that moves less: on texts (mAP /
    P@10 after 64,000 events) .281 / .578 with 1e-4, .331 / .645 with 1e-2; from 3e-3 to 3e-2 little changes.
    Raises ConfigError.
    """

    gamma: float = 1e-2
    rho: float = 1.0
    lam: float = 1e-6

    def __post_init__(self) -> None:
        _positive("gamma", self.gamma)
        _not_negative("rho", self.rho)
        _not_negative("lam", self.lam)


def _positive(name: str, value: float) -> None:
    if not 1 / EXTREME <= value <= EXTREME:
        raise ConfigError(
            f"{name} must be a number above 0, from {1 / EXTREME:g} to {EXTREME:g}, not {value}"
        )


def _not_negative(name: str, value: float) -> None:
    if not 0 <= value <= EXTREME:
        raise ConfigError(f"{name} must be a number from 0 to {EXTREME:g}, not {value}")
