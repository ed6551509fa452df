"""One readable line for each thing wrong in a configuration."""

from __future__ import annotations

import difflib
import re
from typing import Any

from pydantic import ValidationError

from daemon.config.learners import LEARNERS, all_keys, owners
from daemon.config.schema import SECTIONS
from daemon.config.sources import field_of, is_secret, model_at

_KINDS = {
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "string_type": "expected a text in quotes",
    "model_type": "expected a table",
    "dict_type": "expected a table",
    "missing": "this key is required",
    "finite_number": "expected a finite number",
    "string_too_short": "must not be empty",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def unknown_keys(tree: dict[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """(path, sentence) for sections that do not exist."""
    return [
        ((name,), _unknown("section" if isinstance(value, dict) else "key", name, list(SECTIONS)))
        for name, value in tree.items()
        if name not in SECTIONS
    ]


def section_problems(section: str, error: ValidationError) -> list[tuple[tuple[str, ...], str]]:
    """(path, sentence) for each thing pydantic found in one section."""
    found = []
    for item in error.errors(include_url=False):
        path = (section, *(str(part) for part in item["loc"]))
        found.append((path, _sentence(path, item)))
    return found


def _sentence(path: tuple[str, ...], item: Any) -> str:
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden" and path[0] == "learner":
        return _not_of_this_learner(path[-1])
    if kind == "extra_forbidden":
        model = model_at(path) or SECTIONS[path[0]]
        return _unknown("key", path[-1], list(model.model_fields))
    allowed = _allowed(path, item)
    if kind == "missing" or isinstance(value, dict):
        return allowed
    if is_secret(path):
        return f"{allowed} (what was found is not shown)"
    return f"found {_literal(value)}; {allowed}"


def _allowed(path: tuple[str, ...], item: Any) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if path == ("learner", "algorithm"):
        return "allowed: " + ", ".join(f'"{name}"' for name in LEARNERS)
    if kind == "literal_error":
        return f"allowed: {context['expected'].replace(chr(39), chr(34))}"
    if kind == "value_error":
        return str(context["error"])
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        return f"expected {word} {context[name]}"
    default = _KINDS.get(kind, str(item["msg"]))
    found = field_of(path)
    if found is None or kind == "missing":
        return default
    return f"{default} ({found[0].model_fields[found[1]].description})"


def _unknown(what: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    if close:
        nearest = next(k for k in known if k.lower() == close[0])
        return f"unknown {what}; did you mean {nearest}?"
    return f"unknown {what}; allowed: {', '.join(known)}"


def _not_of_this_learner(name: str) -> str:
    others = owners(name)
    if not others:
        return _unknown("key", name, all_keys())
    named = " or ".join(f'"{other}"' for other in others)
    return f"a key of algorithm = {named}; set learner.algorithm, or remove the key"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{_without_password(value)}"' if isinstance(value, str) else repr(value)


def _without_password(text: str) -> str:
    """An address without the user:password that some write into one."""
    return re.sub(r"//[^/]*@", "//***@", text)
