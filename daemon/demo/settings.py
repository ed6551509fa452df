"""The demo's configuration: the defaults over the shipped photos, versions cut often enough to watch."""

from __future__ import annotations

from pathlib import Path

from daemon.demo.pack_files import CATALOG, LABELS, load_pack
from daemon.demo.page import DISPLAY, DemoPorts

FILE = "tripletd.toml"
VERSION_EVERY = 5_000
VERSIONS_KEPT = 8
LOG_BYTES = "32MiB"
MIN_DELTA = 0.02
PATIENCE = 3
"""Learning stops when so many versions in a row have not added MIN_DELTA of mAP to the best one: most of the
gain comes first, and a newcomer has a minute. The defaults go on for longer."""


def write_settings(folder: Path, ports: DemoPorts, followed: bool = True) -> Path:
    """Write `folder`/tripletd.toml and return its path; every path in it but the pack's is relative to it.

    `followed`: a server follows the learner's steps while it learns.
    """
    steps = f'retention_bytes = "{LOG_BYTES}"' if followed else "enabled = false   # nobody follows"
    views = load_pack().catalog.space.views
    tables = "\n".join(f'[space.views.{v.name}]\nkind = "dense"\ndim = {v.dim}\n' for v in views)
    path = folder / FILE
    path.write_text(
        f"""# What `tripletd demo` ran. Everything not named here has its default; see deploy/tripletd.toml.
[stream]
address = "log:clicks.log"
retention_bytes = "{LOG_BYTES}"   # what is learned may go

[space]
id = "clothing-1"

{tables}
[catalog]
path = "{CATALOG}"

[checkpoints]
path = "checkpoints"
every_events = {VERSION_EVERY}   # often, so that the curve can be watched
keep = {VERSIONS_KEPT}   # the curve also tells of those that are gone

[steps]
{steps}

[validate]
judgments = "labels:{LABELS}"
# Stop when {PATIENCE} versions in a row have not added {MIN_DELTA} to the best mAP; the defaults, 8 and
# 0.002, go on for longer.
min_delta = {MIN_DELTA}
patience = {PATIENCE}
on_stop = "exit"

[serve]
display = "{DISPLAY}"

[http]
learn_port = {ports.learn}
validate_port = {ports.validate}
serve_port = {ports.serve}
"""
    )
    return path
