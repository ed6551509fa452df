"""One model per key: many small learners side by side, bounded in number."""

from learners.block import MAX_KEY_BYTES
from learners.keyed.directory import CLOCK, KEY_ARRAYS, KeyedConfig
from learners.keyed.learner import Keyed

__all__ = ["CLOCK", "KEY_ARRAYS", "MAX_KEY_BYTES", "Keyed", "KeyedConfig"]
