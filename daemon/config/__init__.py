"""Configuration: typed sections, three layers, readable errors."""

from daemon.config.load import load_config, parse_setting
from daemon.config.model import SECTIONS, Config
from daemon.config.units import parse_duration, parse_size
from daemon.config.view import ViewConfig

__all__ = ["SECTIONS", "Config", "ViewConfig", "load_config", "parse_duration", "parse_setting", "parse_size"]
