"""What pydantic finds wrong, in this project's words: of a configuration, a request, a file of ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

_SENTENCES: Mapping[str, str] = {
    "extra_forbidden": "unknown field",
    "missing": "is missing",
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
    "int_parsing_size": "expected a whole number with fewer digits",
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    "finite_number": "expected a finite number",
    "multiple_of": "expected a multiple of {multiple_of}",
    "greater_than": "expected above {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected below {lt}",
    "less_than_equal": "expected at most {le}",
    "string_type": "expected a text in quotes",
    "string_unicode": "expected text in UTF-8, without lone surrogates",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "string_pattern_mismatch": "expected a text that matches {pattern}",
    **dict.fromkeys(("literal_error", "enum"), "allowed: {expected}"),
    "too_short": "expected at least {min_length} entries",
    "too_long": "expected at most {max_length} entries",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "iterable_type"), "expected a list"),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type", "mapping_type", "dataclass_type"),
        "expected an object of names and values",
    ),
    "invalid_key": "expected names that are texts",
    "none_required": "expected null",
    "json_invalid": "not JSON: {error}",
    "json_type": "expected a text with JSON in it",
    **dict.fromkeys(("value_error", "assertion_error"), "{error}"),
    "union_tag_invalid": "{discriminator}: allowed: {expected_tags}",
    "union_tag_not_found": "{discriminator} is missing",
    **dict.fromkeys(("recursion_loop", "recursion_depth_exceeded"), "nested too deeply"),
}


def sentence(error: ErrorDetails) -> str:
    """What was expected instead, without the value that was found: that may be a secret.

    Pydantic has a hundred kinds of errors and may get others. One that no schema here can give is said in
    general words rather than in pydantic's.
    """
    template = _SENTENCES.get(error["type"], "not of the kind expected here")
    context: dict[str, Any] = error.get("ctx", {})
    try:
        text = template.format_map(context)
    except (KeyError, ValueError):
        return template.partition("{")[0].rstrip(" :") or "not of the kind expected here"
    if text.endswith(("at least 1 characters", "at least 1 entries")):
        return "must not be empty"
    return text.replace("'", '"') if "allowed: " in template else text
