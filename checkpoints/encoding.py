"""State arrays as one canonical safetensors file: equal arrays give equal bytes, hence equal sha256.

Layout: 8-byte little-endian header length, JSON header padded with spaces so that the data begins at a
multiple of 64 bytes, then the arrays without gaps, widest dtype first, then by name; little-endian C
order.

The sha256 of the file proves that a version is what was written. A digest per array (xxh3_128, about the
speed of memory) is taken in the same pass: with it a replica can check one array in a fraction of the
time, without the others. It guards against mistakes, not against forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from xxhash import xxh3_128

from checkpoints.manifest import ArraySpec
from checkpoints.store import BadKey, BlobStore, Buffer, Damaged, FutureFormat, KeyMissing, VerifyingStore

FORMAT = "tripletd.arrays/1"
ALIGN = 64
MAX_HEADER = 16 << 20
READ_CHUNK = 4 << 20
DTYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
}
_NAMES = {np.dtype(code).str: name for name, code in DTYPES.items()}

Destination: TypeAlias = Callable[[ArraySpec], np.ndarray | None]
"""Where an array of a file is read to: a C-contiguous array of its shape and dtype; None: only verify it."""


@dataclass(frozen=True, slots=True)
class EncodedState:
    """Arrays ready to be written: header bytes, then `arrays` in this order; `size` is all of it."""

    header: bytes
    arrays: tuple[np.ndarray, ...]
    specs: tuple[ArraySpec, ...]
    size: int

    def parts(self) -> list[Buffer]:
        """The file's bytes as consecutive flat buffers; array parts are views, not copies."""
        return [self.header, *(a.reshape(-1).view(np.uint8).data for a in self.arrays if a.size)]


def encode(arrays: Mapping[str, np.ndarray]) -> EncodedState:
    """Lay out `arrays`. Only arrays that are not C-contiguous are copied.

    ValueError for a dtype that safetensors cannot hold, or big-endian data.
    """
    for name, array in arrays.items():
        if array.dtype.str not in _NAMES:
            raise ValueError(f"array {name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    ordered = tuple(np.asarray(arrays[name], order="C") for name in names)
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT}}
    at = 0
    for name, array in zip(names, ordered, strict=True):
        header[name] = {
            "dtype": _NAMES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGN)
    specs = tuple(spec_of(name, array) for name, array in zip(names, ordered, strict=True))
    return EncodedState(len(text).to_bytes(8, "little") + text, ordered, specs, 8 + len(text) + at)


def state_hash(arrays: Mapping[str, np.ndarray]) -> str:
    """sha256 (hex) over names, dtypes, shapes and bytes of `arrays`: that of their canonical file."""
    digest = hashlib.sha256()
    for part in encode(arrays).parts():
        digest.update(part)
    return digest.hexdigest()


def fresh(spec: ArraySpec) -> np.ndarray:
    """A new array, writable, C-contiguous and aligned to 64 bytes: the usual destination."""
    return empty_aligned(spec.shape, np.dtype(DTYPES[spec.dtype]))


def read_arrays(
    stream: BinaryIO, size: int, sha256: str, place: str, destination: Destination = fresh
) -> dict[str, np.ndarray]:
    """Arrays of the file behind `stream`, verified against `size` and `sha256` while reading, one copy.

    What `destination` gave is written before the hash is known: after an error it holds anything. Arrays it
    wants only verified are left out of the result. Raises Damaged or FutureFormat; ValueError when an array
    from `destination` is not of the stored shape and dtype.
    """
    digest = hashlib.sha256()
    length = int.from_bytes(_read(stream, 8, digest, place), "little")
    if not 2 <= length <= min(size - 8, MAX_HEADER):
        raise Damaged("malformed", place, f"states a header of {length} bytes in a file of {size}")
    specs = _parse_header(_read(stream, length, digest, place), size - 8 - length, place)
    arrays = {}
    for spec in specs:
        array = destination(spec)
        if array is None:
            _pass_over(stream, math.prod(spec.shape) * np.dtype(DTYPES[spec.dtype]).itemsize, digest, place)
        else:
            _fill(stream, _bytes_of(array, spec), digest, place)
            arrays[spec.name] = array
    if stream.read(1):
        raise Damaged("mismatch", place, f"is longer than the {size} bytes that its manifest states")
    if digest.hexdigest() != sha256:
        raise Damaged("altered", place, "its bytes do not match the sha256 in its manifest")
    return arrays


def load_arrays(
    store: BlobStore, key: str, size: int, sha256: str, destination: Destination = fresh
) -> dict[str, np.ndarray]:
    """`read_arrays` of `key` in `store`; a missing or unreadable file is Damaged too.

    A local copy of what lies elsewhere that turns out to be damaged is fetched again, once.
    """
    try:
        if isinstance(store, VerifyingStore):
            try:
                with store.open_verified(key, size, sha256) as stream:
                    return read_arrays(stream, size, sha256, key, destination)
            except (Damaged, OSError):
                store.forget(sha256)
            with store.open_verified(key, size, sha256) as stream:
                return read_arrays(stream, size, sha256, key, destination)
        with store.open(key) as stream:
            return read_arrays(stream, size, sha256, key, destination)
    except KeyMissing:
        raise Damaged("missing", key, "is named in a manifest and not there") from None
    except BadKey as error:
        raise Damaged("mismatch", error.place, error.problem) from error
    except OSError as error:
        raise Damaged("unreadable", key, f"cannot be read: {error.strerror or error}") from error


def empty_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Uninitialised C-contiguous array whose first byte sits at a multiple of 64."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip : skip + size].view(dtype).reshape(shape)


def spec_of(name: str, array: np.ndarray) -> ArraySpec:
    """What a manifest says of an array, but for its digest."""
    return ArraySpec(name, _NAMES[array.dtype.str], tuple(array.shape))


def _read(stream: BinaryIO, size: int, digest: Any, place: str) -> bytes:
    data = bytearray(size)
    _fill(stream, memoryview(data), digest, place)
    return bytes(data)


def _fill(stream: BinaryIO, view: memoryview, digest: Any, place: str) -> None:
    while view:
        got = stream.readinto(view[:READ_CHUNK])  # type: ignore[attr-defined]
        if not got:
            raise Damaged("truncated", place, f"ends {len(view)} bytes early")
        digest.update(view[:got])
        view = view[got:]


def _pass_over(stream: BinaryIO, size: int, digest: Any, place: str) -> None:
    """Hash the next `size` bytes without keeping them."""
    scratch = memoryview(bytearray(min(size, READ_CHUNK)))
    for start in range(0, size, READ_CHUNK):
        _fill(stream, scratch[: size - start], digest, place)


def _bytes_of(array: np.ndarray, spec: ArraySpec) -> memoryview:
    fits = array.shape == spec.shape and array.dtype.str == DTYPES[spec.dtype]
    if not (fits and array.flags.c_contiguous and array.flags.writeable):
        raise ValueError(f"the destination of array {spec.name!r} is not a {spec.dtype} of {spec.shape}")
    return array.reshape(-1).view(np.uint8).data


def _parse_header(text: bytes, data_size: int, place: str) -> list[ArraySpec]:
    """Arrays in file order; they must cover the data without gap or overlap."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged("malformed", place, f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise Damaged("malformed", place, "its header is not a JSON object")
    metadata = header.pop("__metadata__", None)
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise FutureFormat(place, found, FORMAT)
    parsed = [_parse_entry(name, entry, place) for name, entry in header.items()]
    entries = sorted(parsed, key=lambda entry: entry[:2])
    at = 0
    for begin, end, _ in entries:
        if begin != at:
            raise Damaged("malformed", place, f"its arrays leave a gap or overlap at byte {at}")
        at = end
    if at != data_size:
        raise Damaged("mismatch", place, f"its arrays cover {at} bytes of {data_size}")
    return [spec for _, _, spec in entries]


def _parse_entry(name: str, entry: object, place: str) -> tuple[int, int, ArraySpec]:
    """(begin, end, spec) of one header entry."""
    if isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}:
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if (
            isinstance(dtype, str)
            and dtype in DTYPES
            and _naturals(shape)
            and _naturals(offsets)
            and len(offsets) == 2
            and offsets[1] - offsets[0] == math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        ):
            return offsets[0], offsets[1], ArraySpec(name, dtype, tuple(shape))
    raise Damaged("malformed", place, f"array {name!r} has no consistent dtype, shape and data_offsets")


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(part) is int and part >= 0 for part in value)


def array_digest(array: np.ndarray) -> str:
    """xxh3_128 (32 hex digits) of an array's bytes in C order, little-endian, as a manifest has it."""
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    return xxh3_128(flat.view(np.uint8).data if flat.size else b"").hexdigest()


class ArrayDigests:
    """Takes the bytes of an encoded state in the order of its file, in chunks of any size."""

    def __init__(self, encoded: EncodedState) -> None:
        self._specs = encoded.specs
        self._digests = [xxh3_128() for _ in encoded.arrays]
        self._left = [array.nbytes for array in encoded.arrays]
        self._before = len(encoded.header)  # bytes that belong to no array
        self._at = 0

    def update(self, data: Buffer) -> None:
        """Take the next bytes."""
        view = memoryview(data).cast("B")
        skipped = min(self._before, len(view))
        self._before -= skipped
        view = view[skipped:]
        while view:
            size = min(self._left[self._at], len(view))
            self._digests[self._at].update(view[:size])
            self._left[self._at] -= size
            view = view[size:]
            self._at += self._left[self._at] == 0

    def passing(self, chunks: Iterable[Buffer]) -> Iterator[Buffer]:
        """The chunks, each passed through here."""
        for chunk in chunks:
            self.update(chunk)
            yield chunk

    def specs(self) -> tuple[ArraySpec, ...]:
        """What a manifest says of the arrays, once all bytes were taken."""
        assert not any(self._left), "every byte was taken"
        return tuple(
            replace(spec, digest=digest.hexdigest())
            for spec, digest in zip(self._specs, self._digests, strict=True)
        )
