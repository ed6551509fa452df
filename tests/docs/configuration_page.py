"""The configuration reference in docs/configuration.md, made from the schema.

`python -m tests.docs.configuration_page > docs/configuration.md` writes it; a test compares the two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from daemon.config.learners import (
    DEFAULT,
    EMBEDDING_COLUMNS,
    LEARNERS,
    OF_EMBEDDINGS,
    ArmKeys,
    KernelKeys,
    KernelMapConfig,
    LearnerConfig,
    RaceKeys,
    ViewKeys,
)
from daemon.config.schema import SECTIONS, CatalogColumns, FollowConfig, RatingsConfig, WritesConfig
from daemon.config.services import KafkaConfig, RegistryConfig
from daemon.config.values import AsDuration, AsSize, duration_text, size_text

INTRODUCTION = """# Configuration

One TOML file, `tripletd.toml`, holds the settings of all roles; every key has a default except the views of
the space. [deploy/tripletd.toml](../deploy/tripletd.toml) is a commented file with every key in it.
`tripletd check` prints what was set and where it came from; with `--all` every value in force.

This page is made from the schema: `python -m tests.docs.configuration_page > docs/configuration.md`.

## Where values come from

The last one that gives a value wins:

1. the default;
2. the file: `--config FILE`, `TRIPLETD_CONFIG`, or `tripletd.toml` in the working directory;
3. the environment: `TRIPLETD_SECTION__KEY`, such as `TRIPLETD_LEARNER__C=0.05` or
   `TRIPLETD_STREAM__KAFKA__CLIENT=confluent`;
4. the command line: `--set section.key=value`, such as `--set learner.C=0.05`; it may be repeated.

A secret is never taken from the command line. Its variable may end in `_FILE` and then names a file with the
secret: `TRIPLETD_HTTP__TOKEN_FILE=/run/secrets/token`.

A relative path in the file is relative to the file's folder; one from the environment or the command line is
relative to the working directory. An unknown key, a wrong type or a value out of bounds ends a command with
exit code 78 and one line for each mistake.

A *duration* is written as `"250ms"`, `"30s"`, `"5m"`, `"1h30m"` or `"7d"`, a *size* as `"512KiB"`, `"64MiB"`
or `"2GiB"`. A list is written as in TOML; in the environment and after `--set` with commas, `stable,latest`.
"""
_TABLES: Mapping[tuple[str, str], tuple[str, type[BaseModel]]] = {
    ("stream", "kafka"): ("[stream.kafka]", KafkaConfig),
    ("catalog", "columns"): ("[catalog.columns]", CatalogColumns),
    ("space", "views"): ("[space.views.NAME]", ViewKeys),
    ("serve", "writes"): ("[serve.writes]", WritesConfig),
    ("serve", "ratings"): ("[serve.ratings]", RatingsConfig),
    ("feed", "follow"): ("[feed.follow]", FollowConfig),
    ("feed.follow", "registry"): ("[feed.follow.registry]", RegistryConfig),
}
"""Keys that are tables of their own, with their headings."""
_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", SecretStr: "secret"}


def reference() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    for name, model in SECTIONS.items():
        if name == "learner":
            yield from _learners()
            continue
        inner = [key for section, key in _TABLES if section == name]
        yield from _table(f"[{name}]", model, leave_out=inner)
        for key in inner:
            nested = [one for table, one in _TABLES if table == f"{name}.{key}"]
            yield from _table(*_TABLES[name, key], leave_out=nested)
            for one in nested:
                yield from _table(*_TABLES[f"{name}.{key}", one])
        if name == "space":
            yield from _table("[[space.views.NAME.kernels]]", KernelMapConfig)


def _learners() -> Iterator[str]:
    yield from _table("[learner]", LearnerConfig, leave_out=["race"])
    yield from _table("[learner.race]", RaceKeys)
    yield from _table("[[learner.race.arms]]", ArmKeys)
    for algorithm, model in LEARNERS.items():
        yield from _table(
            f'[learner] with algorithm = "{algorithm}"', model, leave_out=LearnerConfig.model_fields
        )
    yield from _table("[[learner.kernels]]", KernelKeys)


def _table(heading: str, model: type[BaseModel], leave_out: Any = ()) -> Iterator[str]:
    """A heading, what the section is for, and a row per key."""
    yield f"## {heading}\n"
    about = " ".join((model.__doc__ or "").split()).partition(": ")[2]
    if about:
        yield f"{about[0].upper()}{about[1:]}\n"
    yield "| key | type | default | what it does |\n|---|---|---|---|"
    for name, field in model.model_fields.items():
        if name not in leave_out:
            cells = (f"`{name}`", _type(name, field), _default(name, field), field.description or "")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _type(name: str, field: FieldInfo) -> str:
    if AsDuration in field.metadata:
        return "duration" if type(None) not in get_args(field.annotation) else 'duration or `""`'
    if AsSize in field.metadata:
        return "size" if type(None) not in get_args(field.annotation) else 'size or `""`'
    if name == "arms":
        return '`"auto"`, `"none"`, list of tables'
    if name == "algorithm":
        return ", ".join(f'`"{algorithm}"`' for algorithm in LEARNERS)
    bounds = [f"{word} {bound:{',' if isinstance(bound, int) else 'g'}}" for word, bound in _bounds(field)]
    return ", ".join([_named(field.annotation), *bounds])


def _named(annotation: Any) -> str:
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in inner)
    if get_origin(annotation) is list:
        tables = isinstance(inner[0], type) and issubclass(inner[0], BaseModel)
        return "list of tables" if tables else "list"
    if get_origin(annotation) is dict:
        return "table"
    return _PLAIN[annotation] if annotation in _PLAIN else " or a ".join(_named(one) for one in inner)


def _bounds(field: FieldInfo) -> Iterator[tuple[str, float]]:
    for one in field.metadata:
        match one:
            case Ge(ge=bound):
                yield "at least", bound  # type: ignore[misc]
            case Gt(gt=bound):
                yield "above", bound  # type: ignore[misc]
            case Le(le=bound):
                yield "at most", bound  # type: ignore[misc]
            case Lt(lt=bound):
                yield "below", bound  # type: ignore[misc]


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if name == "algorithm":
        least, most = EMBEDDING_COLUMNS[0], EMBEDDING_COLUMNS[-1]
        space = (
            f"where the space is one view of {least} to {most:,} columns ranked by its cosine, without [keys]"
        )
        return f'`"{OF_EMBEDDINGS}"` {space}; else `"{DEFAULT}"`'
    value = field.get_default(call_default_factory=True)
    value = "auto" if name == "arms" else value
    if AsDuration in field.metadata:
        value = duration_text(value)
    elif AsSize in field.metadata:
        value = size_text(value)
    elif isinstance(value, SecretStr):
        value = value.get_secret_value()
    elif isinstance(value, list):
        tables = (one.model_dump(exclude_unset=True) if isinstance(one, BaseModel) else one for one in value)
        value = list(tables)
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
