"""[space.views.NAME]: the views of an object and the maps they go through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from daemon.config.values import Section
from learners.kernels.kinds import MAP_KERNELS, MapKernelName

Scaling: TypeAlias = Literal["identity", "unit", "standardise", "whiten", "tfidf", "shares", "sqrt"]

DENSE_ONLY = ("standardise", "whiten")
SPARSE_ONLY = ("tfidf",)

KERNEL_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "identity": (),
    "unit": (),
    "sqrt": (),
    "cosine": (),
    "rff": ("kernel", "components", "sigma", "bandwidth", "seed"),
    "hike": ("levels",),
    "nystroem": ("kernel", "laplacian", "landmarks", "components", "sigma", "bandwidth", "seed"),
}
"""The maps that stand for a kernel, and their keys."""


class KernelMapConfig(Section):
    """[[space.views.NAME.kernels]]: a kernel of the view's scaled vectors, as an explicit map."""

    map: Literal["identity", "unit", "sqrt", "cosine", "rff", "hike", "nystroem"] = Field(
        description="the map whose dot product is, or approximates, the kernel"
    )
    kernel: MapKernelName = Field(
        "gaussian", description="rff: gaussian or exponential; nystroem: gaussian or intersection"
    )
    components: int = Field(256, ge=1, description="dimensions of rff; most eigenvectors of nystroem")
    sigma: float = Field(1.0, gt=0, allow_inf_nan=False, description="width of the kernel, times bandwidth")
    bandwidth: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="a distance; 0 takes it from the warm-up sample"
    )
    laplacian: bool = Field(False, description="nystroem: the normalised Laplacian's eigenvectors")
    landmarks: int = Field(1000, ge=1, description="nystroem: rows of the sample that are kept")
    levels: int = Field(8, ge=1, description="hike: levels of each column's unary code")
    seed: int = Field(0, ge=0, lt=2**63, description="of what is drawn at random")

    @model_validator(mode="after")
    def _keys_belong_to_the_map(self) -> KernelMapConfig:
        known = KERNEL_OPTIONS[self.map]
        for name in sorted(self.model_fields_set - {"map", *known}):
            keys = ", ".join(known) or "no keys"
            raise ValueError(f'{name} is no key of map "{self.map}", which has {keys}; leave it out')
        if self.kernel not in MAP_KERNELS.get(self.map, (self.kernel,)):
            raise ValueError(f'map "{self.map}" has the kernels {" and ".join(MAP_KERNELS[self.map])}')
        return self

    def options(self) -> dict[str, Any]:
        """The map's options."""
        return {name: getattr(self, name) for name in KERNEL_OPTIONS[self.map]}


class ViewKeys(Section):
    """[space.views.NAME]: one named feature vector of an object and the maps it goes through."""

    kind: Literal["dense", "sparse"] = Field("dense", description="how the view's vectors are written")
    dim: int = Field(ge=1, le=100_000_000, description="dimensions of the view")
    map: Scaling | list[Scaling] = Field(
        "unit",
        description="scaling before learning, one or several; default whiten when dense, unit when sparse",
    )
    components: int = Field(100, ge=1, description="most dimensions kept by whiten")
    kernels: list[KernelMapConfig] = Field(
        default_factory=list, description="kernels of the scaled vectors, side by side; none: as they are"
    )

    @model_validator(mode="before")
    @classmethod
    def _map_by_kind(cls, data: Any) -> Any:
        # Dense features of unknown scale and correlation: whitened ones gave the best figures of all maps.
        if isinstance(data, dict) and "map" not in data and data.get("kind", "dense") == "dense":
            return {**data, "map": "whiten"}
        return data

    @model_validator(mode="after")
    def _map_suits_kind(self) -> ViewKeys:
        if not self.scalings:
            raise ValueError('map names none; use "identity" to change nothing')
        for name in self.scalings:
            if self.kind == "sparse" and name in DENSE_ONLY:
                raise ValueError(
                    f'map "{name}" needs a dense view; for sparse use "tfidf", "unit" or "identity"'
                )
            if self.kind == "dense" and name in SPARSE_ONLY:
                raise ValueError(
                    f'map "{name}" needs a sparse view; for dense use "whiten", "standardise" or "unit"'
                )
        if self.kind == "sparse" and "components" in self.model_fields_set:
            raise ValueError("components belongs to whiten, which needs a dense view; leave it out")
        if self.kind == "sparse" and any(kernel.map == "cosine" for kernel in self.kernels):
            raise ValueError('map "cosine" needs a dense view; for sparse use "unit"')
        return self

    @property
    def scalings(self) -> list[str]:
        """The scalings in order."""
        return [self.map] if isinstance(self.map, str) else list(self.map)

    @property
    def needs_sample(self) -> bool:
        """Whether a map is fitted to objects, or draws on their distances."""
        fitted = {*DENSE_ONLY, *SPARSE_ONLY}
        by_kernel = any(
            one.map in {"hike", "nystroem"} or (one.map == "rff" and one.bandwidth == 0)
            for one in self.kernels
        )
        return by_kernel or bool(fitted & set(self.scalings))

    def widths(self) -> list[int]:
        """Most columns of each block that the maps give."""
        scaled = min(self.dim, self.components) if "whiten" in self.scalings else self.dim
        sizes = {"cosine": scaled + 1}
        return [
            {**sizes, "rff": one.components, "nystroem": one.components, "hike": scaled * one.levels}.get(
                one.map, scaled
            )
            for one in self.kernels
        ] or [scaled]
