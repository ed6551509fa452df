"""Configuration: typed sections, three layers, readable errors."""

from daemon.config.learners import ViewKeys
from daemon.config.load import load_config, parse_setting
from daemon.config.schema import SECTIONS, Config
from daemon.config.values import parse_duration, parse_size

__all__ = ["SECTIONS", "Config", "ViewKeys", "load_config", "parse_duration", "parse_setting", "parse_size"]
