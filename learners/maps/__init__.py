"""Maps: fixed or fitted, frozen transformations of views into one feature space."""

from .base import ViewMap as ViewMap
from .identity import IdentityMap as IdentityMap
from .space import KINDS as KINDS
from .space import FittedSpaceMap as FittedSpaceMap
from .space import SpaceMap as SpaceMap
from .space import ViewConfig as ViewConfig
from .standardise import StandardiseMap as StandardiseMap
from .tfidf import TfidfMap as TfidfMap
from .unit import UnitMap as UnitMap
from .whiten import WhitenMap as WhitenMap
