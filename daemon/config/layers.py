"""The layers a configuration is put together from: file, environment, command line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from daemon.config.model import SECTIONS, ViewConfig
from daemon.config.section import Section
from daemon.exits import UserError

ENV_PREFIX = "TRIPLETD_"
Flat = dict[tuple[str, ...], Any]


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. UserError naming file and line when it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file", "give the path of a tripletd.toml with --config") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})", "save the file as UTF-8") from None
    except OSError as error:
        remedy = "check the path and its permissions"
        raise UserError(f"{path}: cannot be read: {error.strerror}", remedy) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}", "mend the line named above") from None
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        remedy = "deploy/tripletd.toml shows what a configuration holds"
        raise UserError(f"{path}: {problem}", remedy) from None


def flatten(tree: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, leaf) of a nested mapping; an empty table is a leaf of its own."""
    for name, value in tree.items():
        path = (*prefix, name)
        if isinstance(value, Mapping) and value:
            yield from flatten(value, path)
        else:
            yield path, value


def nest(flat: Flat) -> dict[str, Any]:
    """The inverse of flatten; a table wins over a plain value of the same name."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        node = tree
        for name in path[:-1]:
            child = node.get(name)
            if not isinstance(child, dict):
                child = node[name] = {}
            node = child
        node.setdefault(path[-1], value)
    return tree


def env_layer(environ: Mapping[str, str]) -> Flat:
    """TRIPLETD_SECTION__KEY variables as typed leaves; a variable without "__" is not ours to judge."""
    layer: Flat = {}
    for name, text in environ.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            path = _spelt(tuple(name[len(ENV_PREFIX) :].lower().split("__")))
            layer[path] = coerce(path, text)
    return layer


def field_of(path: tuple[str, ...]) -> tuple[type[Section], str] | None:
    """The model and field name a path leads to; None when there is none."""
    model = SECTIONS.get(path[0]) if path else None
    if model is None:
        return None
    if path[:2] == ("space", "views"):
        return (ViewConfig, path[3]) if len(path) == 4 and path[3] in ViewConfig.model_fields else None
    return (model, path[1]) if len(path) == 2 and path[1] in model.model_fields else None


def coerce(path: tuple[str, ...], text: str) -> Any:
    """A value written as text (environment, --set) in its key's type; left as text when it does not fit."""
    found = field_of(path)
    if found is None:
        return text
    annotation: Any = found[0].model_fields[found[1]].annotation
    try:
        return TypeAdapter[Any](annotation).validate_strings(text)
    except ValidationError:
        return text


def _spelt(path: tuple[str, ...]) -> tuple[str, ...]:
    """Environment names are upper-case: give back the key's own spelling (learner.C)."""
    model = SECTIONS.get(path[0])
    if model is None or len(path) != 2:
        return path
    spelling = {name.lower(): name for name in model.model_fields}
    return (path[0], spelling.get(path[1], path[1]))
