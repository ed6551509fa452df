"""How far one source, query or item may move the learner within a window of events."""

from learners.caps.config import CapsConfig
from learners.caps.learning import CappedInfo, learn_capped
from learners.caps.window import ITEM, NAMES, QUERY, REASONS, SOURCE, StepWindow

__all__ = [
    "ITEM",
    "NAMES",
    "QUERY",
    "REASONS",
    "SOURCE",
    "CappedInfo",
    "CapsConfig",
    "StepWindow",
    "learn_capped",
]
