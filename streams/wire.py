"""The wire format's structure: from bytes to checked fields, shared by both decoders.

Maps are unpacked as tuples of (key, value) pairs and lists as lists, so that a repeated key is seen
and a map is never mistaken for a list. Numbers inside vectors are not looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgpack

from streams import poison
from streams.event import PAIR_UNKNOWN, TEAMS, UNNAMED_VIEW
from streams.limits import (
    ARMS_VERSION,
    DRAFTED_VERSION,
    FORMAT_VERSION,
    KEYED_VERSION,
    KIND_VERSION,
    MAX_KEY_BYTES,
    MAX_MAP_ENTRIES,
    MAX_PAIR,
    MAX_SHOWN,
    MAX_TEXT_BYTES,
    MAX_TS,
    MAX_VALUE_BYTES,
    MAX_WEIGHT,
    PAIR_KINDS,
    PAIRED_VERSION,
    TRAINED_VERSION,
)
from streams.poison import Poison

RawVector = bytes | list[bytes]
"""A vector as it is on the wire: dense bytes, or [index bytes, value bytes]."""

_EVENT_REQUIRED = frozenset(("v", "id", "ts", "q", "c", "s"))
_EVENT_FIELDS = _EVENT_REQUIRED | {"w", "src", "imp", "prop", "sp"}
_IMPRESSION_REQUIRED = frozenset(("v", "id", "ts", "q", "shown", "clicked"))
_IMPRESSION_FIELDS = _IMPRESSION_REQUIRED | {"prop", "src", "sp"}
_DRAFT_REQUIRED = frozenset(("models", "teams"))
_DRAFT_FIELDS = _DRAFT_REQUIRED | {"explored"}
_OBJECT_FIELDS = frozenset(("id", "x", "views"))
_OF_VERSION: Mapping[int, tuple[str, ...]] = {
    KEYED_VERSION: ("key",),
    DRAFTED_VERSION: ("draft", "key"),
    KIND_VERSION: ("kind", "draft", "key"),
    TRAINED_VERSION: ("trained", "draft", "key"),
    ARMS_VERSION: ("arms", "draft", "key"),
    PAIRED_VERSION: ("pair", "key"),
}
"""The field that each later version requires, and those that it may have besides."""


def _refuse_extension(code: int, data: bytes) -> object:
    raise Poison(poison.WRONG_TYPE, "msgpack extension types are not used")


def unpack(value: bytes | None, max_bytes: int, max_list: int, max_text: int = MAX_TEXT_BYTES) -> Any:
    """The msgpack value in `value`; raises Poison and nothing else, whatever the bytes.

    Lists are limited to `max_list` entries, texts to `max_text` bytes, maps and depth to the format's limits,
    so the memory taken is at most a small multiple of `max_bytes`.
    """
    if value is None:
        raise Poison(poison.NULL_VALUE)
    if len(value) > max_bytes:
        raise Poison(poison.TOO_LARGE, f"{len(value)} bytes, the limit is {max_bytes}")
    try:
        return msgpack.unpackb(
            value,
            object_pairs_hook=tuple,
            ext_hook=_refuse_extension,
            max_str_len=max_text,
            max_bin_len=max_bytes,
            max_array_len=max_list,
            max_map_len=MAX_MAP_ENTRIES,
            max_ext_len=16,
        )
    except msgpack.ExtraData:
        raise Poison(poison.TRAILING_BYTES, _if_json(value)) from None
    except msgpack.StackError:
        raise Poison(poison.TOO_DEEP) from None
    except UnicodeDecodeError:
        raise Poison(poison.BAD_TEXT) from None
    except ValueError as error:
        # msgpack has one exception for every limit; its text is the only thing that tells them apart.
        reason = poison.TOO_LARGE if "exceeds max_" in str(error) else poison.NOT_MSGPACK
        raise Poison(reason) from None


def _if_json(value: bytes) -> str:
    """A detail for what begins like JSON, whose first byte is a whole msgpack number; "" for all else."""
    if value[:1] not in (b"{", b"["):
        return ""
    return "this looks like JSON, not msgpack; `tripletd feed` reads JSON lines"


def open_map(raw: Any, where: str) -> dict[str, Any]:
    """The entries of a map, refusing anything else and any repeated key."""
    if type(raw) is not tuple:
        raise Poison(poison.WRONG_TYPE, f"{where} is not a map")
    fields = dict(raw)
    if len(fields) != len(raw):
        raise Poison(poison.DUPLICATE_KEY, f"in {where}")
    return fields


def read_event(value: bytes | None, max_bytes: int = MAX_VALUE_BYTES) -> dict[str, Any]:
    """An event's fields, all checked except the objects `q`, `c` and `s`, which stay raw.

    A `pair` of a later release is read as unknown.
    """
    fields = open_map(unpack(value, max_bytes, max_list=2), "the event")
    _check_head(fields, _EVENT_REQUIRED, _EVENT_FIELDS, (FORMAT_VERSION, KEYED_VERSION, PAIRED_VERSION))
    if len(fields) > len(_EVENT_REQUIRED):
        _check_texts(fields, ("src", "imp", "sp"))
        if "w" in fields:
            check_number(fields["w"], "w", MAX_WEIGHT)
        if "prop" in fields:
            check_number(fields["prop"], "prop", 1.0)
        if "pair" in fields:
            check_whole(fields["pair"], "pair", MAX_PAIR)
            fields["pair"] = fields["pair"] if fields["pair"] <= PAIR_KINDS else PAIR_UNKNOWN
    return fields


def read_impression(value: bytes | None) -> dict[str, Any]:
    """An impression's fields, all checked except the objects in `q` and `shown`, which stay raw."""
    fields = open_map(unpack(value, MAX_VALUE_BYTES, max_list=MAX_SHOWN), "the impression")
    versions = FORMAT_VERSION, KEYED_VERSION, DRAFTED_VERSION, KIND_VERSION, TRAINED_VERSION, ARMS_VERSION
    _check_head(fields, _IMPRESSION_REQUIRED, _IMPRESSION_FIELDS, versions)
    _check_texts(fields, ("src", "sp", "kind"))
    if type(fields["shown"]) is not list or not fields["shown"]:
        raise Poison(poison.WRONG_TYPE, "shown is not a list of at least one object")
    check_clicked(fields["clicked"], len(fields["shown"]))
    if "prop" in fields:
        check_propensity(fields["prop"], len(fields["shown"]))
    if "draft" in fields:
        fields["draft"] = read_draft(fields["draft"], len(fields["shown"]))
    for name in ("trained", "arms"):
        if fields.get(name, True) is not True:
            raise Poison(poison.WRONG_TYPE, f"{name} is not true")
    return fields


def _check_head(
    fields: dict[str, Any], required: frozenset[str], known: frozenset[str], versions: tuple[int, ...]
) -> None:
    """Version first (a later version has other fields), then fields, id, time and key."""
    version = check_version(fields, versions)
    if version != FORMAT_VERSION:
        wanted, *also = _OF_VERSION[version]
        required, known = required | {wanted}, known | {wanted, *also}
    if not required <= fields.keys():
        raise Poison(poison.MISSING_FIELD, f"{', '.join(sorted(required - fields.keys()))} missing")
    if len(fields) > len(required) and not known.issuperset(fields):
        raise Poison(poison.UNKNOWN_FIELD, f"known are {', '.join(sorted(known))}")
    check_text(fields["id"], "id")
    check_ts(fields["ts"])
    if "key" in fields:
        check_key(fields["key"])


def check_version(fields: Mapping[str, Any], known: tuple[int, ...] = (FORMAT_VERSION,)) -> int:
    """`v`, which is there and one of the versions that this release reads."""
    version = fields.get("v")
    if type(version) is not int:
        reason = poison.WRONG_TYPE if "v" in fields else poison.MISSING_FIELD
        raise Poison(reason, "v is not a whole number" if "v" in fields else "v is missing")
    if version not in known:
        readable = " and ".join(map(str, known))
        raise Poison(poison.UNSUPPORTED_VERSION, f"this release reads version {readable}")
    return version


def _check_texts(fields: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name in fields:
            check_text(fields[name], name)


def check_ts(raw: Any) -> None:
    """A whole number of milliseconds within 0 .. 2^53 - 1."""
    if type(raw) is not int:
        raise Poison(poison.WRONG_TYPE, "ts is not a whole number of milliseconds")
    if not 0 <= raw <= MAX_TS:
        raise Poison(poison.OUT_OF_RANGE, "ts is not within 0 .. 2^53 - 1 milliseconds")


def check_text(raw: Any, where: str) -> None:
    """A text, not empty; `unpack` has already refused any above 512 bytes."""
    if not isinstance(raw, str):
        raise Poison(poison.WRONG_TYPE, f"{where} is not a text")
    if not raw:
        raise Poison(poison.OUT_OF_RANGE, f"{where} is empty")


def check_key(raw: Any) -> None:
    """The key of a model: a text of 1 to 64 bytes of UTF-8 without the character U+0000."""
    check_text(raw, "key")
    if len(raw.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise Poison(poison.TOO_LARGE, f"key is longer than {MAX_KEY_BYTES} bytes")
    if "\0" in raw:
        raise Poison(poison.OUT_OF_RANGE, "key holds the character U+0000")


def check_number(raw: Any, where: str, high: float) -> None:
    """A finite number in (0, high]."""
    if type(raw) is not float and type(raw) is not int:
        raise Poison(poison.WRONG_TYPE, f"{where} is not a number")
    if not (0 < raw <= high and isfinite(raw)):
        raise Poison(poison.OUT_OF_RANGE, f"{where} is not above 0 and at most {high:g}")


def check_clicked(raw: Any, shown: int) -> None:
    """A list of ranks, ascending without repeats, each below `shown`."""
    if type(raw) is not list:
        raise Poison(poison.WRONG_TYPE, "clicked is not a list of ranks")
    last = -1
    for rank in raw:
        if type(rank) is not int:
            raise Poison(poison.WRONG_TYPE, "clicked holds something other than a rank")
        if not last < rank < shown:
            raise Poison(poison.OUT_OF_RANGE, "clicked ranks do not ascend within the shown list")
        last = rank


def check_propensity(raw: Any, shown: int) -> None:
    """A list of one number in (0, 1] per shown rank."""
    if type(raw) is not list:
        raise Poison(poison.WRONG_TYPE, "prop is not a list of numbers")
    if len(raw) != shown:
        raise Poison(poison.OUT_OF_RANGE, "prop and shown differ in length")
    for number in raw:
        check_number(number, "prop", 1.0)


def read_draft(raw: Any, shown: int) -> dict[str, Any]:
    """A draft's fields, checked: models as [name, version, records], teams, and where there is one the
    explored slot as [rank, chance]."""
    fields = open_map(raw, "draft")
    if not fields.keys() >= _DRAFT_REQUIRED:
        raise Poison(poison.MISSING_FIELD, "a draft has models and teams")
    if not _DRAFT_FIELDS.issuperset(fields):
        raise Poison(poison.UNKNOWN_FIELD, "in draft: it has models, teams and explored")
    check_draft(fields["models"], fields["teams"], shown)
    if "explored" in fields:
        check_explored(fields["explored"], shown)
    return fields


def check_draft(models: Any, teams: Any, shown: int) -> None:
    """One or two models as [name, version, records], and a team for each shown rank."""
    if type(models) is not list or type(teams) is not list:
        raise Poison(poison.WRONG_TYPE, "draft: models and teams are lists")
    if len(models) not in (1, 2) or len(teams) != shown:
        raise Poison(poison.OUT_OF_RANGE, "draft: one or two models, and a team for each shown rank")
    for model in models:
        if type(model) is not list or len(model) != 3:
            raise Poison(poison.WRONG_TYPE, "draft: a model is [name, version, records]")
        check_text(model[0], "draft.models")
        for number in model[1:]:
            check_whole(number, "a number of draft.models", MAX_TS)
    for team in teams:
        check_whole(team, "a team of the draft", TEAMS[len(models)])


def check_explored(explored: Any, shown: int) -> None:
    """The rank of the explored slot and the chance of the object in it."""
    if type(explored) is not list or len(explored) != 2:
        raise Poison(poison.WRONG_TYPE, "draft.explored is not [rank, chance]")
    check_whole(explored[0], "the rank of draft.explored", shown - 1)
    check_number(explored[1], "the chance of draft.explored", 1.0)


def check_whole(raw: Any, where: str, high: int) -> None:
    """A whole number within 0 .. high."""
    if type(raw) is not int:
        raise Poison(poison.WRONG_TYPE, f"{where} is not a whole number")
    if not 0 <= raw <= high:
        raise Poison(poison.OUT_OF_RANGE, f"{where} is not within 0 .. {high}")


def read_object(raw: Any, where: str) -> tuple[str | None, dict[str, RawVector] | None]:
    """An object's id and its raw vectors by view name; None for what it does not have."""
    if type(raw) is tuple and len(raw) == 1:  # the two common forms, without the way through a dict
        ((name, only),) = raw
        if name == "x":
            return None, {UNNAMED_VIEW: _read_vector(only, where)}
        if name == "id" and type(only) is str and only:
            return only, None
    fields = open_map(raw, where)
    object_id = fields.get("id")
    if "id" in fields:
        check_text(object_id, f"{where}.id")
        if len(fields) == 1:
            return object_id, None
    if not _OBJECT_FIELDS.issuperset(fields):
        raise Poison(poison.UNKNOWN_FIELD, f"in {where}: an object has id, x and views")
    if ("x" in fields) == ("views" in fields):
        raise Poison(poison.BAD_OBJECT, f"{where} needs an id, or exactly one of x and views")
    if "x" in fields:
        return object_id, {UNNAMED_VIEW: _read_vector(fields["x"], where)}
    views = open_map(fields["views"], f"{where}.views")
    if not views:
        raise Poison(poison.BAD_OBJECT, f"{where}.views is empty")
    for name, vector in views.items():
        check_text(name, f"a view name in {where}")
        _read_vector(vector, where)
    return object_id, views


def _read_vector(raw: Any, where: str) -> RawVector:
    if type(raw) is bytes:
        if not raw or len(raw) & 3:
            raise Poison(poison.BAD_VECTOR, f"{where}: a dense vector is not a whole number of float32")
        return raw
    if type(raw) is not list or len(raw) != 2:
        raise Poison(poison.WRONG_TYPE, f"{where}: a vector is neither bytes nor [indices, values]")
    indices, values = raw
    if type(indices) is not bytes or type(values) is not bytes:
        raise Poison(poison.WRONG_TYPE, f"{where}: indices and values are not bytes")
    if len(indices) != len(values) or len(indices) & 3:
        raise Poison(poison.BAD_VECTOR, f"{where}: indices and values are not equally many 4-byte numbers")
    return raw
