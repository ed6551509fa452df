"""The configuration that a described catalog begins with."""

from __future__ import annotations

import json
import os

from streams.event import SpaceSpec


def settings_text(catalog: str, space: SpaceSpec, model: str) -> str:
    """TOML with the space and the catalog, by its name beside the configuration; all else has its default.

    model: folder of the text model by which `serve` can embed queries in words, "" without one.
    """
    views = "\n".join(
        f'[space.views.{view.name}]\nkind = "{view.kind}"\ndim = {view.dim}\n' for view in space.views
    )
    texts = f"[embeddings]\nfolder = {json.dumps(os.path.abspath(model))}\n\n" if model else ""
    return f"""# What `tripletd describe` wrote beside {catalog}; every other key: docs/configuration.md.
[stream]
address = "log:clicks.log"

{views}
[catalog]
path = {json.dumps(catalog)}

{texts}[checkpoints]
path = "checkpoints"
"""
