"""SOML: sparse online learning of a diagonal metric."""

from learners.soml.learners import DiagonalLearner, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig

__all__ = ["DiagonalLearner", "SomlDa", "SomlDaConfig", "SomlTg", "SomlTgConfig"]
