"""How far one source, query or item may move the learner within a window of events."""

from learners.caps.window import (
    ITEM,
    NAMES,
    QUERY,
    REASONS,
    SOURCE,
    CappedInfo,
    CapsConfig,
    StepWindow,
    learn_capped,
)

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
