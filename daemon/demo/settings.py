"""The demo's configuration: the defaults over the shipped photos, versions cut often enough to watch."""

from __future__ import annotations

from pathlib import Path

from daemon.demo.pack_files import CATALOG, LABELS, load_pack
from daemon.demo.page import DISPLAY, DemoPorts

FILE = "tripletd.toml"
VERSION_EVERY = 8_000
VERSIONS_KEPT = 20
LOG_BYTES = "32MiB"


def write_settings(folder: Path, ports: DemoPorts | None = None) -> Path:
    """Write `folder`/tripletd.toml and return its path; every path in it but the pack's is relative to it.

    `ports`: where the roles listen when the page is served too; None: anywhere, since nobody looks.
    """
    learn, validate, serve = (0, 0, 0) if ports is None else (ports.learn, ports.validate, ports.serve)
    steps = "enabled = false   # nobody follows" if ports is None else f'retention_bytes = "{LOG_BYTES}"'
    served = "" if ports is None else f'\n[serve]\ndisplay = "{DISPLAY}"\n'
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
min_delta = 0.005   # smaller gains are not worth a newcomer's time
on_stop = "exit"

[http]
learn_port = {learn}
validate_port = {validate}
serve_port = {serve}
{served}"""
    )
    return path
