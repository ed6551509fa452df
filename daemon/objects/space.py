"""The feature space as configured, in the terms of streams."""

from __future__ import annotations

from daemon.config import Config
from streams.event import SpaceSpec, ViewSpec


def space_of(config: Config) -> SpaceSpec:
    """[space] as a SpaceSpec, views in the file's order; UserError when no view is configured."""
    spec = config.space_spec()
    return SpaceSpec(spec["id"], tuple(ViewSpec(**view) for view in spec["views"]))
