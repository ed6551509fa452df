"""Keys of SOML, the sparse diagonal metric."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from daemon.config.learners.pull import ForgetKeys


class SomlTgKeys(ForgetKeys):
    """[learner] with algorithm = "soml-tg"."""

    algorithm: Literal["soml-tg"] = Field("soml-tg", description="learning algorithm")
    eta: float = Field(1.0, gt=0, le=1e18, description="learning rate")
    lam: float = Field(1e-5, ge=0, le=1e18, description="lambda, the weight of the L1 norm; 0 keeps all")


class SomlDaKeys(ForgetKeys):
    """[learner] with algorithm = "soml-da"."""

    algorithm: Literal["soml-da"] = Field("soml-da", description="learning algorithm")
    gamma: float = Field(1e-2, gt=0, le=1e18, description="inertia: w grows as 1 / gamma (1e-4 for labels)")
    rho: float = Field(1.0, ge=0, le=1e18, description="sparsity that fades as 1 / sqrt(events)")
    lam: float = Field(1e-6, ge=0, le=1e18, description="lambda, sparsity that stays")
