"""Maps: fixed or fitted, frozen transformations of views into one feature space."""

from learners.maps.approximations import NystroemMap, RffMap
from learners.maps.base import CosineMap, IdentityMap, UnitMap, ViewConfig, ViewMap
from learners.maps.histograms import HikeMap, SharesMap, SqrtMap
from learners.maps.order import OrderMap
from learners.maps.queries import PairFit, QueryMap
from learners.maps.scaling import PcaMap, PreconditionMap, ProjectionMap, StandardiseMap, TfidfMap, WhitenMap
from learners.maps.separable import AddKpcaMap, PcaLapMap, RpLapMap
from learners.maps.space import KINDS, ChainMap, FittedSpaceMap, KernelsMap, SpaceMap

__all__ = [
    "KINDS",
    "AddKpcaMap",
    "ChainMap",
    "CosineMap",
    "FittedSpaceMap",
    "HikeMap",
    "IdentityMap",
    "KernelsMap",
    "NystroemMap",
    "OrderMap",
    "PairFit",
    "PcaLapMap",
    "PcaMap",
    "PreconditionMap",
    "ProjectionMap",
    "QueryMap",
    "RffMap",
    "RpLapMap",
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
