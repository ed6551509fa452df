"""The feature space: which views an object has, of which kind and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNNAMED_VIEW = "x"
"""The name of the view that an object's `x` fills: `x: v` and `views: {"x": v}` mean the same."""


@dataclass(frozen=True)
class ViewSpec:
    """One view: its name, whether its vectors are dense or sparse, and how many coordinates it has."""

    name: str
    kind: Literal["dense", "sparse"]
    dim: int


@dataclass(frozen=True)
class SpaceSpec:
    """A feature space: its id, refused on mismatch, and its views in a fixed order."""

    id: str
    views: tuple[ViewSpec, ...]
