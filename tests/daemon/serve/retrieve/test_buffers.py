"""Arrays come back when nobody holds what they belong to, and not before."""

from __future__ import annotations

from daemon.serve.retrieve.norms import KEPT, ArrayPool


class Owner:
    """Something that holds an array."""


def test_an_array_is_used_again_once_its_owner_is_gone() -> None:
    buffers, owner = ArrayPool(), Owner()
    first = buffers.take(100)
    address = first.ctypes.data
    buffers.owned(first, owner)
    del first
    assert buffers.take(100).ctypes.data != address
    del owner
    second, other = buffers.take(60), Owner()  # a shorter one fits as well
    assert (len(second), second.ctypes.data) == (60, address)
    buffers.owned(second, other)
    del second, other
    assert buffers.take(49).ctypes.data != address  # but not one that would waste more than half
    assert buffers.take(100).ctypes.data == address


def test_few_arrays_wait() -> None:
    buffers = ArrayPool()
    owners = [Owner() for _ in range(3 * KEPT)]
    for owner in owners:
        buffers.owned(buffers.take(10), owner)
    del owners, owner
    assert len(buffers._free) == KEPT
