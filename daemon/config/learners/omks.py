"""Keys of OKS and OMKS over a support set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from daemon.config.learners.common import LearnerConfig
from daemon.config.learners.omks_maps import HedgeKeys
from daemon.config.section import Section

if TYPE_CHECKING:
    from learners.multikernel.config import KernelConfig


class KernelKeys(Section):
    """[[learner.kernels]]: a kernel of each view, or of those that are named."""

    kind: Literal["rbf", "cosine", "linear", "polynomial", "intersection"] = Field(
        description="which kernel of two vectors"
    )
    sigma: float = Field(1.0, ge=1e-3, le=1e3, description="rbf: width, times the mean distance of objects")
    scale: float = Field(1.0, ge=1e-3, le=1e3, description="polynomial: (scale x^T y + shift)^degree")
    shift: float = Field(1.0, ge=0, le=1e3, description="polynomial: see scale")
    degree: int = Field(2, ge=1, le=16, description="polynomial: see scale")
    views: list[str] = Field(default_factory=list, description="of these views alone; none: of every view")

    def kernel(self) -> KernelConfig:
        """The learner's own settings."""
        from learners.multikernel.config import (
            KernelConfig,  # brings numba in, which most commands do without
        )

        return KernelConfig(self.kind, self.sigma, self.scale, self.shift, self.degree)


def _printed() -> list[KernelKeys]:
    """The four kernels that the paper builds on each kind of feature."""
    from learners.multikernel.config import PRINTED  # brings numba in, which most commands do without

    return [KernelKeys.model_validate({"kind": one.kind, "sigma": one.sigma}) for one in PRINTED]


class SupportKeys(LearnerConfig):
    """What [learner] has for learners over a support set."""

    C: float = Field(0.1, gt=0, allow_inf_nan=False, description="aggressiveness: largest step size tau")
    kernels: list[KernelKeys] = Field(
        default_factory=_printed, min_length=1, description="kernels; a view that none names plays no part"
    )
    triplets: int = Field(5_000, ge=1, le=10_000_000, description="budget: most triplets kept")
    objects: int = Field(5_000, ge=3, le=30_000_000, description="budget: most distinct objects kept")
    evict: Literal["oldest", "smallest"] = Field(
        "oldest", description="which triplet goes: longest untouched, or of the least taus"
    )


class OksKeys(SupportKeys):
    """[learner] with algorithm = "oks"."""

    algorithm: Literal["oks"] = Field("oks", description="learning algorithm")


class OmksKeys(SupportKeys, HedgeKeys):
    """[learner] with algorithm = "omks"."""

    algorithm: Literal["omks"] = Field("omks", description="learning algorithm")
