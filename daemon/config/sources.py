"""The sources a configuration is put together from: file, environment, command line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator, SecretStr, TypeAdapter, ValidationError

from daemon.config.learners import LearnerConfig, all_keys, owner
from daemon.config.schema import SECTIONS
from daemon.config.space import ViewKeys
from daemon.config.values import Section
from daemon.exits import UserError

ENV_PREFIX = "TRIPLETD_"
FILE_SUFFIX = "_file"
"""A secret's variable with this ending holds the path of a file with the secret."""
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
    """TRIPLETD_SECTION__KEY variables as typed leaves; a variable without "__" is not ours to judge.

    The secret of a key may also come from a file: TRIPLETD_SECTION__KEY_FILE holds its path.
    """
    layer: Flat = {}
    for name, text in environ.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            path = _spelt(tuple(name[len(ENV_PREFIX) :].lower().split("__")))
            plain = (*path[:-1], path[-1].removesuffix(FILE_SUFFIX))
            if plain != path and is_secret(plain):
                _refuse_both(name, environ)
                path, text = plain, read_secret(name, text)
            layer[path] = coerce(path, text)
    return layer


def read_secret(name: str, path: str) -> str:
    """The secret in a file named by an environment variable, without the line's end. UserError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a readable text file"
        # the path is not shown: it may be the secret itself, put where its file's path belongs
        message = f"environment {name}: the file it names cannot be read: {why}"
        raise UserError(message, "give the path of the secret's file") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise UserError(f"environment {name}: the file is empty", "write the secret into it, on one line")
    return secret


def _refuse_both(name: str, environ: Mapping[str, str]) -> None:
    plain = name[: -len(FILE_SUFFIX)]
    if plain in environ:
        raise UserError(f"environment {plain} and {name} are both set", "unset one of the two")


def model_at(path: tuple[str, ...]) -> type[Section] | None:
    """The model of the table that holds a path's last name; None where there is no such table."""
    if len(path) < 2:
        return None
    if path[:2] == ("space", "views"):
        return ViewKeys if len(path) == 4 else None
    if path[0] == "learner" and len(path) == 2:
        return owner(path[1]) or LearnerConfig
    model = SECTIONS.get(path[0])
    for name in path[1:-1]:
        table = model.model_fields.get(name) if model is not None else None
        inner = table.annotation if table is not None else None
        model = inner if isinstance(inner, type) and issubclass(inner, Section) else None
    return model


def field_of(path: tuple[str, ...]) -> tuple[type[Section], str] | None:
    """The model and field name a path leads to; None when there is none."""
    model = model_at(path)
    return (model, path[-1]) if model is not None and path[-1] in model.model_fields else None


def is_secret(path: tuple[str, ...]) -> bool:
    """Whether the value at a path must never be shown."""
    found = field_of(path)
    return found is not None and found[0].model_fields[found[1]].annotation is SecretStr


def coerce(path: tuple[str, ...], text: str) -> Any:
    """A value written as text (environment, --set) in its key's type; left as text when it does not fit, and
    where the key has a reader of texts of its own (durations, sizes, lists).
    """
    found = field_of(path)
    field = None if found is None else found[0].model_fields[found[1]]
    if field is None or any(isinstance(one, BeforeValidator) for one in field.metadata):
        return text
    try:
        annotation: Any = field.annotation
        return TypeAdapter[Any](annotation).validate_strings(text)
    except ValidationError:
        return text


def _spelt(path: tuple[str, ...]) -> tuple[str, ...]:
    """Environment names are upper-case: give back the key's own spelling (learner.C)."""
    model = model_at(path)
    if model is None:
        return path
    names = all_keys() if path[0] == "learner" else list(model.model_fields)
    spelling = {name.lower(): name for name in names}
    return (*path[:-1], spelling.get(path[-1], path[-1]))
