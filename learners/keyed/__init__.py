"""One model per key: many small learners side by side, bounded in number."""

from learners.keyed.config import MAX_KEY_BYTES, KeyedConfig
from learners.keyed.learner import Keyed

__all__ = ["MAX_KEY_BYTES", "Keyed", "KeyedConfig"]
