"""Names of objects in a store, and which names are refused."""

from __future__ import annotations

import re

from checkpoints.errors import BadKey

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FOLDER = re.compile(r"versions/([0-9]{10})/[^/]+")
_MANIFEST = re.compile(r"versions/([0-9]{10})/manifest\.json")
_IN_THE_WAY = re.compile(r"versions/([0-9]{10})")
_LEDGER = re.compile(r"ledger/([0-9]{10})\.json")
VERSIONS = "versions/"
LEDGER = "ledger/"
HISTORY = "history.jsonl"


def check_name(name: str) -> str:
    """`name` when it is one plain file name; raises BadKey for folders, `..`, links' tricks, NUL."""
    if not _NAME.fullmatch(name):
        raise BadKey(repr(name), "is not a plain file name (letters, digits, '.', '_', '-')")
    return name


def check_key(key: str) -> str:
    """`key` when every `/`-separated part is a plain name; raises BadKey."""
    for part in key.split("/"):
        if not _NAME.fullmatch(part):
            raise BadKey(repr(key), "is not a relative path of plain names")
    return key


def folder(number: int) -> str:
    """`versions/0000000012/` for 12."""
    return f"{VERSIONS}{number:010d}/"


def folder_number(key: str) -> int | None:
    """The version in whose folder `key` lies, None for other keys."""
    match = _FOLDER.fullmatch(key)
    return int(match.group(1)) if match else None


def manifest_key(number: int) -> str:
    """Where the manifest of version `number` lives."""
    return folder(number) + "manifest.json"


def manifest_number(key: str) -> int | None:
    """Inverse of `manifest_key`, None for other keys."""
    match = _MANIFEST.fullmatch(key)
    return int(match.group(1)) if match else None


def number_in_the_way(key: str) -> int | None:
    """The version where whose folder belongs an object stands instead, None for other keys."""
    match = _IN_THE_WAY.fullmatch(key)
    return int(match.group(1)) if match else None


def ledger_key(n: int) -> str:
    """Where ledger entry `n` lives."""
    return f"{LEDGER}{n:010d}.json"


def ledger_number(key: str) -> int | None:
    """Inverse of `ledger_key`, None for other keys."""
    match = _LEDGER.fullmatch(key)
    return int(match.group(1)) if match else None
