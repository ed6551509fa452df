"""The caps that a version was learned under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoints.manifest import Manifest
from learners.caps import CapsConfig

CAPS = "caps"
"""Their key among the learner's settings in a manifest, which has none where there were no caps."""


def caps_in(settings: Mapping[str, Any]) -> CapsConfig:
    """The caps among the learner's settings of a manifest. TypeError or ConfigError for what is no record."""
    return CapsConfig(**settings.get(CAPS, {}))


def caps_of(manifest: Manifest) -> CapsConfig:
    """The caps of a version, as `caps_in`."""
    return caps_in(manifest.learner["config"])
