"""Maps: fixed or fitted, frozen transformations of views into one feature space."""

from learners.maps.base import ViewConfig, ViewMap
from learners.maps.compose import KINDS, ChainMap, KernelsMap
from learners.maps.cosine import CosineMap
from learners.maps.fourier import RffMap
from learners.maps.hike import HikeMap
from learners.maps.identity import IdentityMap
from learners.maps.nystroem import NystroemMap
from learners.maps.roots import SqrtMap
from learners.maps.shares import SharesMap
from learners.maps.space import FittedSpaceMap, SpaceMap
from learners.maps.standardise import StandardiseMap
from learners.maps.tfidf import TfidfMap
from learners.maps.unit import UnitMap
from learners.maps.whiten import WhitenMap

__all__ = [
    "KINDS",
    "ChainMap",
    "CosineMap",
    "FittedSpaceMap",
    "HikeMap",
    "IdentityMap",
    "KernelsMap",
    "NystroemMap",
    "RffMap",
    "SharesMap",
    "SpaceMap",
    "SqrtMap",
    "StandardiseMap",
    "TfidfMap",
    "UnitMap",
    "ViewConfig",
    "ViewMap",
    "WhitenMap",
]
