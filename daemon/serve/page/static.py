"""The page's own files, read once and held in memory: what is not in the table does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from daemon.serve.page.answers import tag_of

INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file of the page."""

    body: bytes
    content_type: str
    tag: str


def static_files() -> Mapping[str, StaticFile]:
    """Every file by its name below `static/`, such as "vendor/uPlot.esm.js"."""
    found: dict[str, StaticFile] = {}
    _collect(files("daemon.serve.page") / "static", "", found)
    return found


def _collect(folder: Traversable, before: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        name = before + entry.name
        if entry.is_dir():
            _collect(entry, f"{name}/", found)
        elif (content_type := _TYPES.get("." + entry.name.rpartition(".")[2])) is not None:
            body = entry.read_bytes()
            found[name] = StaticFile(body, content_type, tag_of(body))
