"""Reading a version's arrays into buffers that are already there."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints import Damaged, VersionStore
from tests.harness.memory_store import MemoryStore

from .samples import meta, state


def test_arrays_land_in_the_given_buffers_and_the_rest_is_only_verified() -> None:
    store = VersionStore(MemoryStore())
    first = state(3)
    store.publish(store.claim(), first, meta())
    buffer = np.full((4, 4), np.nan, np.float32)
    loaded = store.load(0, lambda spec: buffer if spec.name == "W" else None)
    assert loaded.arrays.keys() == {"W"}
    assert loaded.arrays["W"] is buffer
    assert buffer.tobytes() == first["W"].tobytes()


def test_what_is_only_verified_is_verified() -> None:
    memory = MemoryStore()
    store = VersionStore(memory)
    store.publish(store.claim(), state(), meta())
    key = next(key for key in memory.list() if key.endswith(".safetensors"))
    memory._objects[key] = memory._objects[key][:-1] + bytes([memory._objects[key][-1] ^ 1])
    with pytest.raises(Damaged) as caught:
        store.load(0, lambda spec: None)
    assert caught.value.kind == "altered"


def test_a_buffer_of_another_shape_or_dtype_is_a_mistake_of_the_caller() -> None:
    store = VersionStore(MemoryStore())
    store.publish(store.claim(), state(), meta())
    for buffer in (np.zeros((4, 5), np.float32), np.zeros((4, 4)), np.zeros((4, 4), np.float32).T[::2]):
        with pytest.raises(ValueError, match="destination"):
            store.load(0, lambda spec: buffer if spec.name == "W" else None)


def test_derived_arrays_too_and_their_meta_alone() -> None:
    store = VersionStore(MemoryStore())
    store.publish(store.claim(), state(), meta())
    assert store.attached_meta(0, "serving") is None
    store.attach(0, "serving", {"matrix": np.eye(4, dtype=np.float32)}, {"made": "now"})
    buffer = np.zeros((4, 4), np.float32)
    assert store.attached_meta(0, "serving") == {"made": "now"}
    found = store.attached(0, "serving", lambda spec: buffer)
    assert found is not None
    assert (buffer == np.eye(4)).all()
