"""Work done by processes, a bounded number of pieces at a time; they end with the process that started
them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from daemon.exits import EX_TEMPFAIL, UserError

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2
"""Pieces per process that wait or are done at one time."""


def done_by(workers: int, work: Callable[[T], R], pieces: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each piece with what `work`, a function of a module, made of it, in the order in which they are done.

    workers: processes; 1 works in this one. Raises UserError where one of them was ended from outside.
    """
    if workers == 1:
        quiet_libraries()
        for piece in pieces:
            yield piece, work(piece)
        return
    yield from _by_processes(workers, work, pieces)


def _by_processes(workers: int, work: Callable[[T], R], pieces: Iterable[T]) -> Iterator[tuple[T, R]]:
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    coming = iter(pieces)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin)
    try:
        running = {pool.submit(work, piece): piece for piece in islice(coming, _AHEAD * workers)}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                piece = running.pop(future)
                yield piece, future.result()
                for more in islice(coming, 1):
                    running[pool.submit(work, more)] = more
    except (BrokenProcessPool, MemoryError):
        raise UserError(
            "a process that describes objects had too little memory, or was ended from outside",
            "start again, with fewer --workers: what was done is kept",
            EX_TEMPFAIL,
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a process of the pool: leave stops to its parent, end with it, use one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    quiet_libraries()


def _end_with_parent() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(EX_TEMPFAIL)  # nobody waits for what this one does, and its files are whole or not there


def quiet_libraries() -> None:
    """OpenCV, where it is there, computes in one thread: the processes are as many as the cores."""
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(1)
