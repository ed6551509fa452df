"""The errors of the learners: one tree, every message names the place and the remedy."""

from __future__ import annotations

import math


class LearnerError(ValueError):
    """Anything the learners refuse. Never retriable: the same input is refused again."""


class BlockError(LearnerError):
    """An array cannot be read as rows of vectors: wrong type, shape, length or dimension."""


class ConfigError(LearnerError):
    """A setting of a learner or map is outside its stated range."""


class StateError(LearnerError):
    """Saved arrays are not a state of this learner: missing, or wrong shape, dtype or values."""


class MapError(LearnerError):
    """A map cannot be fitted, loaded, or applied to the views it was given."""


class CompileNotice(UserWarning):
    """Kernels are not in the cache and are compiled now, which takes a while. Not an error."""


def require_positive(name: str, value: float) -> None:
    """Raises ConfigError naming a setting that is no finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be a finite number above 0, not {value}")
