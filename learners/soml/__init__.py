"""SOML: sparse online learning of a diagonal metric."""

from learners.soml.config import SomlDaConfig, SomlTgConfig
from learners.soml.da import SomlDa
from learners.soml.diagonal import DiagonalLearner
from learners.soml.tg import SomlTg

__all__ = ["DiagonalLearner", "SomlDa", "SomlDaConfig", "SomlTg", "SomlTgConfig"]
