"""Files computed from a version and attached to it later, such as its serving form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.commit import discard
from checkpoints.encoding import Destination, encode, fresh, load_arrays
from checkpoints.errors import BadKey, CheckpointError, Damaged, FutureFormat, KeyMissing
from checkpoints.fields import Fields, digest, file_name
from checkpoints.keys import check_name, folder
from checkpoints.sealed import seal, unseal
from checkpoints.store import BlobStore

FORMAT = 1


def attach(
    store: BlobStore, number: int, name: str, arrays: Mapping[str, np.ndarray], meta: dict[str, Any]
) -> None:
    """Put the arrays, then `<name>.json`, which commits them. KeyExists when `name` is attached."""
    record_key = _record_key(number, name)
    data_name = f"{name}-{os.urandom(4).hex()}.safetensors"
    put = store.put_new(folder(number) + data_name, encode(arrays).parts())
    try:
        store.put_new(
            record_key,
            [
                seal(
                    {
                        "format": FORMAT,
                        "number": number,
                        "name": name,
                        "file": data_name,
                        "size": put.size,
                        "sha256_of_file": put.sha256,
                        "meta": meta,
                    }
                )
            ],
        )
    except (CheckpointError, ValueError):
        discard(store, folder(number) + data_name)
        raise


def attached(
    store: BlobStore, number: int, name: str, destination: Destination = fresh
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """(arrays, meta) as attached, every byte verified; None without `<name>.json`. Raises Damaged.

    destination: as for `load_arrays`.
    """
    record = _record(store, number, name)
    if record is None:
        return None
    return load_arrays(store, record.data_key, record.size, record.sha256, destination), record.meta


def attached_meta(store: BlobStore, number: int, name: str) -> dict[str, Any] | None:
    """The meta of what is attached, without its arrays; None without `<name>.json`. Raises Damaged."""
    record = _record(store, number, name)
    return None if record is None else record.meta


@dataclass(frozen=True, slots=True)
class _Record:
    """What `<name>.json` says."""

    data_key: str
    size: int
    sha256: str
    meta: dict[str, Any]


def _record(store: BlobStore, number: int, name: str) -> _Record | None:
    key = _record_key(number, name)
    try:
        record = unseal(store.get(key), key)
    except KeyMissing:
        return None
    if record.get("format") != FORMAT or isinstance(record.get("format"), bool):
        raise FutureFormat(key, record.get("format"), f"derived format {FORMAT}")
    at = Fields(record, key)
    at.integer("format")
    if at.integer("number") != number or at.text("name") != name:
        raise Damaged("mismatch", key, "belongs to another version or name")
    data_key = folder(number) + file_name(at, "file")
    found = _Record(data_key, at.integer("size"), digest(at, "sha256_of_file"), at.mapping("meta"))
    at.nothing_left()
    return found


def _record_key(number: int, name: str) -> str:
    if check_name(name) == "manifest" or name.startswith("state-"):
        raise BadKey(repr(name), "is kept for the version itself")
    return f"{folder(number)}{name}.json"
