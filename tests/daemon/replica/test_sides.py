"""The double buffer under contention: no torn read, readers drain, nobody waits without end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from daemon.replica.buffers import LeftRight

WORDS = 4096


def buffers() -> LeftRight[np.ndarray]:
    return LeftRight(np.zeros(WORDS, np.int64), np.zeros(WORDS, np.int64))


def test_readers_see_the_active_side_and_the_writer_has_the_other():
    sides = LeftRight(["left"], ["right"])
    with sides.read() as seen:
        assert seen == ["left"]
        assert sides.idle == ["right"]
        sides.flip()
        with sides.read() as later:
            assert later == ["right"]
        assert seen == ["left"]
        assert sides.idle is seen


def test_no_reader_ever_sees_a_buffer_that_is_being_written():
    sides, done, torn, seen = buffers(), threading.Event(), [], set()

    def read() -> None:
        while not done.is_set():
            with sides.read() as side:
                first = int(side[0])
                for _ in range(3):
                    if not (side == first).all():
                        torn.append(first)
                seen.add(first)
            time.sleep(0.0002)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    value, end = 0, time.monotonic() + 30
    while len(seen) < 50 and time.monotonic() < end:
        value += 1
        assert sides.drain(10)
        for start in range(0, WORDS, 512):  # in pieces, so that a reader let in too early finds two values
            sides.idle[start : start + 512] = value
        sides.flip()
    done.set()
    for reader in readers:
        reader.join(10)
    assert not torn
    assert len(seen) >= 50


def test_reads_inside_reads_and_a_raising_reader_leave_cleanly():
    sides = buffers()
    with pytest.raises(ValueError, match="out"), sides.read(), sides.read():
        raise ValueError("out")
    sides.flip()
    assert sides.drain(0)


def test_the_writer_waits_for_the_last_reader_of_the_old_side_and_no_longer():
    sides, inside, leave = buffers(), threading.Event(), threading.Event()

    def read() -> None:
        with sides.read():
            inside.set()
            leave.wait(10)

    reader = threading.Thread(target=read, name="slow-reader")
    reader.start()
    inside.wait(10)
    sides.flip()
    assert not sides.drain(0.02)
    assert [text.split(",")[0] for text in sides.lingering()] == ["slow-reader"]
    with sides.read():  # others come and go meanwhile
        pass
    leave.set()
    assert sides.drain(10)
    assert sides.lingering() == []
    reader.join(10)


def test_a_side_that_is_still_read_cannot_become_active_again():
    sides = buffers()
    with sides.read():
        sides.flip()
        with pytest.raises(RuntimeError, match="still has readers"):
            sides.flip()
    assert sides.drain(0)
    sides.flip()
