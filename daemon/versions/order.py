"""How a version orders lists that are given to it, and whether it also searches the catalog.

**Order.** Of the arms of a version (learners beside the main learner, on the same events), clicks choose the
arm, and the share of the user's own ranking in its scores: q^T W p + own_share x own(q, p), with own the
cosine of the vectors as they were given, and q, p of unit length in its metric; a memory of clicks has counts
in place of q^T W p (`learners.forms.click_memory`). Raw scores order given lists best, and lose in a catalog
that no list has shown: the clicks of lists do not tell how an object that was never shown compares.

**Reach** is whether the version is shown to be better at searching, in its serving form. A version with order
but not reach re-ranks the first `top` objects of the user's own ranking: as many as lists have of these,
since nothing is known of objects that no list shows (`daemon.validate.comparing.order_bets`). Of the links of
a page, say, hardly any is among the first. Then `top` is 1, and a search is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from checkpoints.entries import BEST, LedgerEntry
from checkpoints.manifest import Manifest
from checkpoints.versions import Version
from daemon.versions.contents import ARMS_PREFIX
from learners.arms import ArmConfig
from learners.errors import LearnerError, StateError
from learners.forms.bilinear import OwnLengthForm
from learners.forms.click_memory import ClickMemoryForm
from learners.forms.quadratic import ServedForm
from learners.maps.base import OwnRanking

ORDER, REACH = "order", "reach"
"""Keys of a ledger entry's measures: the `OrderChoice` of a version as JSON or None, and whether it searches
the catalog."""
ARMS = "arms"
"""Key of the settings of arms among those of the learner in a manifest."""
OWN_GEOMETRY = "own"
"""Of an arm that learns from vectors scaled so that their inner product is the own ranking's score."""


@dataclass(frozen=True, slots=True)
class OrderChoice:
    """arm: its name. own_share: share of the user's own ranking in the scores. top: how many objects of
    the user's own ranking are re-ranked where the version does not search the catalog; 1: none is moved."""

    arm: str
    own_share: float
    top: int

    @property
    def description(self) -> str:
        """In words."""
        if not self.own_share:
            return f"arm {self.arm}"
        return f"arm {self.arm} with {self.own_share:g} of your own ranking"

    def to_json(self) -> dict[str, Any]:
        """As it stands in a ledger entry."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse. KeyError, TypeError or ValueError for anything else."""
        choice = cls(str(value["arm"]), float(value["own_share"]), int(value["top"]))
        if not (choice.own_share >= 0 and choice.top > 0):
            raise ValueError("own_share is at least 0, and top at least 1")
        return choice


@dataclass(frozen=True, slots=True)
class Answering:
    """How a version answers. order: of given lists, None: by its serving form. reach: whether it searches the
    catalog by its serving form; otherwise it re-ranks the user's own ranking by `order`."""

    order: OrderChoice | None = None
    reach: bool = True


def answering(entries: Iterable[LedgerEntry], number: int) -> Answering:
    """How version `number` answers, by the ledger. Pure.

    Its order is that of its newest judgment, or, where it has none yet, of the newest judged version before
    it. A version that was never promoted searches the catalog: whoever asks for it by name wants to see what
    was learned.
    """
    newest, reach = (-1, -1, None), True
    for entry in entries:
        if entry.version is None or entry.version > number:
            continue
        if ORDER in entry.measures and (entry.version, entry.n) > newest[:2]:
            newest = (entry.version, entry.n, entry.measures[ORDER])
        if entry.kind == "PROMOTE" and entry.alias == BEST and entry.version == number:
            reach = bool(entry.measures.get(REACH, True))
    try:
        choice = None if newest[2] is None else OrderChoice.from_json(newest[2])
    except (KeyError, TypeError, ValueError):
        choice = None
    return Answering(choice, reach or choice is None)


def arm_settings(manifest: Manifest) -> Mapping[str, Mapping[str, Any]]:
    """The settings of a version's arms by name; empty where it has none."""
    return {str(arm["name"]): arm for arm in manifest.learner.get("config", {}).get(ARMS, ())}


def arm_form(version: Version, own: OwnRanking, name: str, own_share: float = 0.0) -> ServedForm:
    """The scores of an arm with a share of the user's own ranking, of vectors of any length.

    Raises StateError where the version has no such arm, or its arrays are missing or not finite.
    """
    settings, prefix = arm_settings(version.manifest).get(name), f"{ARMS_PREFIX}{name}."
    if settings is None:
        raise StateError(f"version {version.manifest.number} has no arm {name}")
    arrays = {key.removeprefix(prefix): one for key, one in version.arrays.items() if key.startswith(prefix)}
    try:
        arm = ArmConfig.of(settings)
        if not arm.of_kind.is_matrix:
            return ClickMemoryForm.of(arrays, own.metric, own_share)
        matrix, roots = arm.of_kind.matrix(arrays, arm.learner), np.sqrt(own.metric)
    except (LearnerError, TypeError) as error:
        raise StateError(f"arm {name}: {error}") from error
    if matrix.shape != (own.dim, own.dim) or not np.isfinite(matrix).all():
        raise StateError(f"arm {name} is not finite, or not of {own.dim} dimensions")
    if arm.geometry == OWN_GEOMETRY:
        matrix *= roots[:, None]
        matrix *= roots
    matrix.reshape(-1)[:: own.dim + 1] += np.float32(own_share) * own.metric
    return OwnLengthForm(matrix, own.metric)


def order_form(version: Version, own: OwnRanking, choice: OrderChoice) -> ServedForm:
    """The scores by which a version orders lists. Raises StateError as `arm_form`."""
    return arm_form(version, own, choice.arm, choice.own_share)
