"""Maps: fixed or fitted, frozen transformations of views into one feature space."""

from learners.maps.base import ViewMap
from learners.maps.identity import IdentityMap
from learners.maps.space import KINDS, FittedSpaceMap, SpaceMap, ViewConfig
from learners.maps.standardise import StandardiseMap
from learners.maps.tfidf import TfidfMap
from learners.maps.unit import UnitMap
from learners.maps.whiten import WhitenMap

__all__ = [
    "KINDS",
    "FittedSpaceMap",
    "IdentityMap",
    "SpaceMap",
    "StandardiseMap",
    "TfidfMap",
    "UnitMap",
    "ViewConfig",
    "ViewMap",
    "WhitenMap",
]
