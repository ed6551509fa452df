"""The folder of a run: what was done so far, beside what it will write, so that a run that was killed goes
on; and the configuration that is among the latter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from daemon.exits import EX_CANTCREAT, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.toml_text import toml_table
from streams.durable import TEMPORARY, is_locked, replacing
from streams.event import SpaceSpec

_PLAN = "plan.json"
_LOCK = "lock"
CATALOG = ".safetensors"
FITTED = ".fitted.safetensors"
SETTINGS = ".toml"
REFUSED = ".refused.tsv"


class DescribedFiles(NamedTuple):
    """What a run writes: the catalog, NAME.safetensors, and beside it with other endings what was `fitted`, a
    configuration to begin with (`settings`) and, where some were `refused`, their names and reasons; and the
    folder of the `run` while it lasts."""

    catalog: Path
    fitted: Path
    settings: Path
    refused: Path
    run: Path

    @classmethod
    def of(cls, out: Path) -> DescribedFiles:
        """Those of a catalog's path. Raises UserError."""
        name = out.name
        if not name.endswith(CATALOG) or name in (CATALOG, FITTED) or name.endswith(FITTED):
            raise UserError(f"{out}: no name for a catalog", "give one such as items.safetensors", EX_USAGE)
        endings = (FITTED, SETTINGS, REFUSED, ".describing")
        return cls(out, *(out.with_name(name.removesuffix(CATALOG) + ending) for ending in endings))


@contextmanager
def run_folder(files: DescribedFiles, plan: dict[str, Any], fresh: bool) -> Iterator[Path]:
    """The run's folder, made or found again, held for this process alone; it is left as it is.

    plan: all that decides what is written. fresh: what a former run did is thrown away. Raises UserError: a
    run with another plan was begun here, another process is at it, or the catalog is there already.
    """
    folder = files.run
    if files.catalog.exists() and not folder.exists():
        remedy = "remove it, or name another with --out"
        raise UserError(f"{files.catalog} is there already", remedy, EX_CANTCREAT)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("wb") as lock:
        if not is_locked(lock):
            what = f"{folder}: another process is describing into it"
            raise UserError(what, "wait for it, or end it", EX_TEMPFAIL)
        _take_over(folder, json.loads(json.dumps(plan)), fresh)
        yield folder


def _take_over(folder: Path, plan: dict[str, Any], fresh: bool) -> None:
    place = folder / _PLAN
    try:
        former = json.loads(place.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        former = None  # killed before anything was done
    if former not in (None, plan) and not fresh:
        changed = sorted(key for key in {*former, *plan} if former.get(key) != plan.get(key))
        remedy = "give what it was begun with, or --fresh to throw away what it did"
        raise UserError(f"{folder}: a run was begun here with other {', '.join(changed)}", remedy, EX_USAGE)
    for one in folder.iterdir():
        if one.name != _LOCK and (former is None or fresh or one.name.startswith(TEMPORARY)):
            one.unlink()
    if former is None or fresh:
        with replacing(place) as file:
            file.write(json.dumps(plan, indent=1).encode())


def settings_text(catalog: str, space: SpaceSpec, model: str) -> str:
    """TOML with the space and the catalog, by its name beside the configuration; all else has its default.

    model: folder of the text model by which `serve` can embed queries in words, "" without one.
    """
    tables: dict[str, dict[str, Any]] = {"stream": {"address": "log:clicks.log"}}
    tables |= {f"space.views.{view.name}": {"kind": view.kind, "dim": view.dim} for view in space.views}
    tables["catalog"] = {"path": catalog}
    tables |= {"embeddings": {"folder": os.path.abspath(model)}} if model else {}
    tables["checkpoints"] = {"path": "checkpoints"}
    lines = [f"# What `tripletd describe` wrote beside {catalog}; every other key: docs/configuration.md."]
    return "\n".join(chain(lines, *([*toml_table(table, keys), ""] for table, keys in tables.items())))
