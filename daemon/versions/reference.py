"""What every version is compared with, in words: version 0, which is the user's own ranking wherever the maps
lose nothing of it, and else what is left of it. Pure, from a configuration or from a version's description of
its map alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemon.config.schema import LOST, SpaceConfig

YOURS = "your ranking"
AFTER_MAPS = "version 0 (cosine after the maps)"
WORDS = {"cosine": "cosine", "inner_product": "inner product", "euclidean": "Euclidean distance"}


@dataclass(frozen=True, slots=True)
class Reference:
    """own: whether version 0 is the user's own ranking. description: which one that is, or what is lost of it
    and how to have it, a sentence."""

    own: bool
    description: str

    @property
    def name(self) -> str:
        """What tables, curves and pages call version 0."""
        return YOURS if self.own else AFTER_MAPS


def reference_by(space: SpaceConfig) -> Reference:
    """What version 0 of a new folder will be under a configuration."""
    if similarity := space.own_similarity:
        return _yours(similarity, {name: view.weight for name, view in space.views.items()})
    if space.loses:
        return _less(space.loses)
    maps = " and ".join(sorted({one for view in space.views.values() for one in view.scalings}))
    return _less(f"it compares vectors after the map {maps}")


def reference_of(described: Mapping[str, Any]) -> Reference:
    """What version 0 of a folder is, by the description of its map in any manifest."""
    spec = described.get("spec", {})
    if similarity := spec.get("similarity"):
        return _yours(str(similarity), spec.get("weights", {}))
    for view in spec.get("views", ()):
        for kind in _kinds(view):
            if kind not in ("unit", "identity"):
                lost = LOST.get(kind, "stands for another similarity")
                return _less(f"the map {kind} of view {view.get('name')} {lost}")
    return Reference(True, "version 0 is your own ranking: the cosine of your vectors")


def _kinds(view: Mapping[str, Any]) -> list[str]:
    """The kinds of the maps that a description holds, in order."""
    if "maps" not in view:
        return [str(view.get("kind"))]
    return [kind for one in view["maps"] for kind in _kinds(one)]


def _yours(similarity: str, weights: Mapping[str, float]) -> Reference:
    alike = len({*weights.values()}) <= 1
    views = [name if alike else f"{name} (weight {weight:g})" for name, weight in weights.items()]
    joined = views[0] if len(views) == 1 else f"{', '.join(views[:-1])} and {views[-1]}, added up"
    return Reference(True, f"version 0 is your own ranking: the {WORDS[similarity]} of {joined}")


def _less(lost: str) -> Reference:
    return Reference(
        False,
        f"version 0 is not your own ranking but the cosine after the maps: {lost}; to have your own, leave "
        'the map out or use map = "precondition", and name space.similarity, in a new checkpoint folder',
    )
