"""The configuration that a described catalog begins with."""

from __future__ import annotations

from streams.event import SpaceSpec


def settings_text(catalog: str, space: SpaceSpec) -> str:
    """TOML with the space and the catalog, by its name beside the configuration; all else has its default."""
    views = "\n".join(
        f'[space.views.{view.name}]\nkind = "{view.kind}"\ndim = {view.dim}\n' for view in space.views
    )
    return f"""# What `tripletd describe` wrote beside {catalog}; every other key: docs/configuration.md.
[stream]
address = "log:clicks.log"

{views}
[catalog]
path = "{catalog}"

[checkpoints]
path = "checkpoints"
"""
