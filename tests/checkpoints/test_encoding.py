"""The state file: canonical, readable by the safetensors library; hostile bytes only ever give Damaged."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from checkpoints import Damaged, Manifest, state_hash
from checkpoints.encoding import DTYPES, encode, read_arrays
from checkpoints.manifest import seal, unseal

from .samples import a_manifest, same, state

ARRAYS = st.dictionaries(
    st.text("abWxyz.0", min_size=1, max_size=5),
    st.sampled_from(sorted(DTYPES.values())).flatmap(
        lambda code: hnp.arrays(
            np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
        )
    ),
    max_size=4,
)


def file_of(arrays: dict[str, np.ndarray]) -> bytes:
    return b"".join(encode(arrays).parts())


def read(data: bytes) -> dict[str, np.ndarray]:
    return read_arrays(io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest(), "here")


@given(ARRAYS)
def test_arrays_survive_and_equal_arrays_give_equal_bytes(arrays: dict[str, np.ndarray]) -> None:
    data = file_of(arrays)
    assert same(read(data), arrays)
    assert len(data) == encode(arrays).size
    shuffled = {name: np.array(arrays[name], order="F") for name in reversed(list(arrays))}
    assert file_of(shuffled) == data
    assert state_hash(arrays) == hashlib.sha256(data).hexdigest()


def test_the_hash_sees_names_shapes_dtypes_and_bytes() -> None:
    base = {"W": np.arange(6, dtype=np.int32).reshape(2, 3)}
    others = [
        {"V": base["W"]},
        {"W": base["W"].reshape(3, 2)},
        {"W": base["W"].view(np.uint32)},
        {"W": base["W"] + 1},
        base | {"b": np.zeros(0, np.int8)},
    ]
    assert len({state_hash(arrays) for arrays in [base, *others]}) == 6


def test_the_safetensors_library_reads_it() -> None:
    assert same(safetensors.numpy.load(file_of(state())), state())


def test_the_widest_come_first_and_then_the_names_decide() -> None:
    arrays = {"b": np.zeros(1, np.int8), "a": np.zeros(1, np.int8), "z": np.zeros(1)}
    assert [spec.name for spec in encode(arrays).specs] == ["z", "a", "b"]


def test_the_data_begins_at_a_multiple_of_64_bytes() -> None:
    data = file_of(state())
    assert (8 + int.from_bytes(data[:8], "little")) % 64 == 0


@given(st.binary(max_size=64), st.integers(0, 200))
def test_random_bytes_are_refused(junk: bytes, at: int) -> None:
    whole = bytearray(file_of(state()))
    for data in (junk, len(junk).to_bytes(8, "little") + junk, whole[:at] + junk + whole[at + len(junk) :]):
        try:
            arrays = read(bytes(data))
        except Damaged:
            continue
        assert bytes(data) == bytes(whole) or not same(arrays, {})


HEADERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["W", "dtype", "shape", "data_offsets", "__metadata__", "format"]), inner
        )
    ),
)


@given(HEADERS)
def test_odd_headers_are_refused(header: object) -> None:
    text = json.dumps({"__metadata__": {"format": "tripletd.arrays/1"}, "W": header}).encode()
    with pytest.raises(Damaged):
        read(len(text).to_bytes(8, "little") + text + b"1234")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "O", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
    ],
)
def test_headers_that_do_not_fit_the_data_are_refused(entry: dict[str, object]) -> None:
    text = json.dumps({"__metadata__": {"format": "tripletd.arrays/1"}, "W": entry}).encode()
    with pytest.raises(Damaged):
        read(len(text).to_bytes(8, "little") + text + b"12345678")


def test_what_no_array_covers_is_told() -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}
    text = json.dumps({"__metadata__": {"format": "tripletd.arrays/1"}, "W": entry}).encode()
    with pytest.raises(Damaged, match="gap or overlap at byte 0"):
        read(len(text).to_bytes(8, "little") + text + b"12345678")


@given(st.binary(max_size=200))
def test_random_manifests_are_refused(junk: bytes) -> None:
    with pytest.raises(Damaged):
        Manifest.from_json(junk, "here")


@given(
    st.dictionaries(
        st.sampled_from(["format", "kind", "number", "files", "positions", "schedule"]), HEADERS, min_size=1
    )
)
def test_sealed_manifests_of_odd_values_are_refused_or_equal(changes: dict[str, object]) -> None:
    record = unseal(a_manifest().to_json(), "here")
    try:
        data = seal(record | changes)
    except ValueError:
        return
    try:
        manifest = Manifest.from_json(data, "here")
    except Damaged:
        return
    assert Manifest.from_json(manifest.to_json(), "here") == manifest


def test_deep_nesting_is_refused_not_a_crash() -> None:
    body = b'{\n"a": ' + b"[" * 100_000 + b"]" * 100_000 + b",\n"
    data = body + f'"sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()
    with pytest.raises(Damaged):
        unseal(data, "here")
