"""What is wrong with a configuration, in sentences: of an unknown key the one that was meant, of a value what
is allowed. No password of an address is shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from daemon.config.learners import LEARNERS, ArmKeys, LearnerConfig, ViewKeys, all_keys, owner, owners
from daemon.config.schema import SECTIONS
from daemon.config.values import Section, masked
from daemon.schema_errors import sentence

FOREIGN_SECTIONS: Mapping[str, str] = {
    "server": "serve",
    "api": "serve",
    "kafka": "stream.kafka",
    "log_file": "stream",
    "events": "stream",
    "data": "catalog",
    "objects": "catalog",
    "items": "catalog",
    "model": "learner",
    "training": "learner",
    "train": "learner",
    "views": "space.views",
    "features": "space.views",
    "columns": "catalog.columns",
    "evaluation": "validate",
    "eval": "validate",
    "validation": "validate",
    "logging": "log",
    "follow": "feed.follow",
    "qdrant": "index",
}
"""What other programs call sections, by what they are called here."""

_PATHS = dict.fromkeys(("file", "folder", "dir", "directory", "url", "uri", "location", "source"), "path")
_ADDRESS = dict.fromkeys(("url", "uri", "path", "file", "broker", "brokers", "bootstrap_servers"), "address")
FOREIGN_KEYS: Mapping[str, Mapping[str, str]] = {
    "learner": {
        **dict.fromkeys(("kind", "type", "name", "model", "method", "learner", "algo"), "algorithm"),
        **dict.fromkeys(("lr", "learning_rate", "aggressiveness", "step_size"), "C"),
        **dict.fromkeys(("batch_size", "minibatch"), "batch"),
        **dict.fromkeys(("weight_decay", "forget"), "decay"),
    },
    "space": {"metric": "similarity", "distance": "similarity", "view": "views", "name": "id"},
    "space.views": {
        **dict.fromkeys(("dims", "size", "dimension", "dimensions", "columns", "n_features"), "dim"),
        **dict.fromkeys(("type", "format"), "kind"),
        **dict.fromkeys(("scaling", "transform", "normalise", "normalize", "preprocess"), "map"),
    },
    "stream": {**_ADDRESS, "num_partitions": "partitions"},
    "stream.kafka": {
        **dict.fromkeys(("username", "user"), "sasl_username"),
        **dict.fromkeys(("password", "secret"), "sasl_password"),
    },
    "catalog": {**_PATHS, "password": "secret", "mapping": "columns", "fields": "columns"},
    "catalog.columns": {
        **dict.fromkeys(("vector", "vectors", "embedding", "embeddings", "features"), "x"),
        **dict.fromkeys(("key", "name", "object", "item"), "id"),
    },
    "checkpoints": {**_PATHS, "interval": "every", "save_every": "every"},
    "feed": {"holdout": "holdout_share", "negatives": "random_negatives", "test_size": "holdout_share"},
    "feed.follow": {**dict.fromkeys(("files", "source", "inputs", "paths", "topics"), "sources")},
    "validate": {
        **dict.fromkeys(("labels", "qrels", "truth"), "judgments"),
        "early_stopping": "patience_events",
    },
    "serve": {"workers": "processes", "timeout": "request_timeout", "alias": "aliases"},
    "index": {"type": "store", "kind": "store", "url": "address", "api_key": "secret", "password": "secret"},
    "embeddings": {**dict.fromkeys(("url", "base_url", "endpoint"), "upstream"), "model": "models"},
    "http": {
        **dict.fromkeys(("port", "listen_port"), "serve_port"),
        **dict.fromkeys(("bind", "address", "listen"), "host"),
        **dict.fromkeys(("api_key", "password", "secret"), "token"),
        **dict.fromkeys(("cert", "certificate", "certfile"), "tls_certificate"),
        **dict.fromkeys(("key", "keyfile"), "tls_key"),
    },
    "log": {**dict.fromkeys(("verbosity", "loglevel", "severity"), "level"), "style": "format"},
}
"""By table, what other programs call keys, by what they are called here."""


def model_at(path: tuple[str, ...]) -> type[Section] | None:
    """The model of the table that holds a path's last name; None where there is no such table."""
    if len(path) < 2:
        return None
    if path[:2] == ("space", "views") and len(path) > 2:
        return ViewKeys if len(path) == 4 else None
    if path[0] == "learner" and len(path) == 2:
        return owner(path[1]) or LearnerConfig
    if path[:3] == ("learner", "race", "arms") and len(path) == 5:
        return ArmKeys
    model = SECTIONS.get(path[0])
    for name in path[1:-1]:
        table = model.model_fields.get(name) if model is not None else None
        inner = table.annotation if table is not None else None
        model = inner if isinstance(inner, type) and issubclass(inner, Section) else None
    return model


def field_of(path: tuple[str, ...]) -> FieldInfo | None:
    """The field that a path leads to; None when there is none."""
    model = model_at(path)
    return None if model is None else model.model_fields.get(path[-1])


def is_secret(path: tuple[str, ...]) -> bool:
    """Whether the value at a path must never be shown."""
    found = field_of(path)
    return found is not None and found.annotation is SecretStr


def unknown_keys(tree: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """(path, sentence) for sections that do not exist."""
    return [
        ((name,), _unknown("section" if isinstance(value, dict) else "key", name, "", list(SECTIONS)))
        for name, value in tree.items()
        if name not in SECTIONS
    ]


def section_problems(section: str, error: ValidationError) -> list[tuple[tuple[str, ...], str]]:
    """(path, sentence) for each thing pydantic found in one section."""
    items = [(item, (section, *map(str, item["loc"]))) for item in error.errors(include_url=False)]
    return [(path, _sentence(path, item)) for item, path in items]


def _sentence(path: tuple[str, ...], item: Any) -> str:
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return _unknown_key(path)
    allowed = _allowed(path, item)
    if kind == "missing" or isinstance(value, dict):
        return allowed
    if is_secret(path):
        return f"{allowed} (what was found is not shown)"
    return f"found {_literal(value)}; {allowed}"


def _allowed(path: tuple[str, ...], item: Any) -> str:
    kind = item["type"]
    if path == ("learner", "algorithm"):
        return "allowed: " + ", ".join(f'"{name}"' for name in LEARNERS)
    if kind == "missing":
        return "this key is required"
    default = "expected a table" if kind in ("model_type", "dict_type") else sentence(item)
    found = field_of(path)
    describes = kind.endswith(("_type", "_parsing")) or kind in ("finite_number", "string_too_short")
    if found is None or not describes:
        return default
    return f"{default} ({found.description})"


def _unknown_key(path: tuple[str, ...]) -> str:
    table, name = ".".join(path[:-1]), path[-1]
    if path[0] == "learner" and len(path) == 2:
        others = owners(name)
        if not others:
            return _unknown("key", name, table, all_keys())
        named = " or ".join(f'"{other}"' for other in others)
        return f"a key of algorithm = {named}; set learner.algorithm, or remove the key"
    model = model_at(path) or SECTIONS[path[0]]
    if path == ("validate", "patience"):
        default = model.model_fields["patience_events"].default
        return f"it counted versions and is gone; patience_events counts events, by default {default:,}"
    if path[:2] == ("space", "views"):
        table = "space.views"
    return _unknown("key", name, table, list(model.model_fields))


def _unknown(what: str, name: str, table: str, known: Sequence[str]) -> str:
    foreign = FOREIGN_KEYS.get(table, {}) if table else FOREIGN_SECTIONS
    meant = foreign.get(name.lower().replace("-", "_"))
    if meant is None:
        close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
        meant = next((k for k in known if k.lower() in close), None)
    if meant is not None:
        return f"unknown {what}; did you mean {meant}?"
    return f"unknown {what}; allowed: {', '.join(known)}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    shown = masked(value if isinstance(value, str) else repr(value))
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    return f'"{shown}"' if isinstance(value, str) else shown


_MOST_SHOWN = 200
_NAMES_A_SECRET = re.compile(r"token|secret|passw|key", re.IGNORECASE)


def syntax_error(text: str, problem: str) -> str:
    """What a reader of TOML said, and below it the line with a caret under the column.

    A line that may hold a secret is not shown: one whose key names one, and one within a text of several
    lines.
    """
    place = re.search(r" \((?:at line (\d+), column (\d+)|at end of document)\)$", problem)
    lines = text.splitlines()
    if place is None or not lines:
        return problem
    number = min(int(place[1]), len(lines)) if place[1] else len(lines)
    line = lines[number - 1]
    column = min(int(place[2]) if place[1] else len(line) + 1, len(line) + 1)
    before = "\n".join(lines[: number - 1])
    inside = any(before.count(quotes) % 2 for quotes in ('"""', "'''"))
    shown = line.expandtabs(1).rstrip()
    if not shown or len(line) > _MOST_SHOWN or inside or _NAMES_A_SECRET.search(line) or masked(line) != line:
        return problem
    return f"{problem}\n  {shown}\n  {' ' * (column - 1)}^"
