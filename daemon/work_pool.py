"""Work done in pieces side by side: in this process, by processes of this machine, or on Ray.

A worker that is gone costs its pieces, which are done again: a piece has to be safe to be done twice. Workers
end with the process that started them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

from daemon.backfill.cluster import lost, ray_module, ray_running
from daemon.backfill.rounds import ShardsLost
from daemon.exits import EX_TEMPFAIL, UserError, as_user_error

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 5
"""How often in a row, without a piece done between, workers may be lost."""
AHEAD = 2
"""Pieces for each process that are waiting or under way at a time."""
_KEPT = "give it more memory or fewer --workers, and the same command again: what is done is kept"
LOOK_UP_S = 0.5
"""A stop that comes just before a thread begins to wait is seen by Python only when the wait ends."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the work. count: processes, 1 works in this one. address: of a Ray cluster, where `count`
    pieces run at a time. nice: by how much processes give way."""

    count: int = 1
    address: str | None = None
    nice: int = 0


def done_by(
    workers: Workers,
    work: Callable[[T], R],
    pieces: Iterable[T],
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[T, R | UserError]]:
    """Each piece with what `work`, a function of a module, made of it, in the order in which they are done.

    Pieces are drawn as workers become free. An error that the user can put right comes in its place, and any
    other ends everything. note: hears of workers that are lost. Raises UserError where that happens again and
    again, and where there is no Ray.
    """
    coming = enumerate(pieces)
    if workers.address is not None:
        with ray_running(workers.address, workers.count):
            yield from _on_ray(workers, work, coming, note)
        return
    left = dict(islice(coming, AHEAD * workers.count))
    if workers.count == 1 or len(left) <= 1:
        for _, piece in chain(left.items(), coming):
            yield piece, outcome(work, piece)
    else:
        yield from _by_processes(workers, work, left, coming, note)


def outcome(work: Callable[[T], R], piece: T) -> R | UserError:
    """What `work` makes of a piece, or an error that the user can put right; any other is raised."""
    try:
        return work(piece)
    except MemoryError as error:  # of a piece, of which there are as many at a time as workers
        return UserError(f"not enough memory: {error}".rstrip(": "), _KEPT, EX_TEMPFAIL)
    except Exception as error:
        readable = as_user_error(error)
        if readable is None:
            raise
        return readable


class _Patience:
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note, self._losses = note, 0

    def done(self) -> None:
        """A piece is done."""
        self._losses = 0

    def lost(self, why: str) -> None:
        """Workers are lost. Raises UserError where it happened too often."""
        self._losses += 1
        if self._losses >= ATTEMPTS:
            raise UserError(f"workers were lost {ATTEMPTS} times in a row: {why}", _KEPT, EX_TEMPFAIL)
        self._note(f"workers are lost ({why}); their work is done again")


def _by_processes(
    workers: Workers,
    work: Callable[[T], R],
    left: dict[int, T],
    coming: Iterator[tuple[int, T]],
    note: Callable[[str], None],
) -> Iterator[tuple[T, R | UserError]]:
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    patience = _Patience(note)
    while left:
        count, others = min(workers.count, len(left)), set(active_children())
        pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin, initargs=(workers.nice,))
        try:
            running = {pool.submit(outcome, work, piece): at for at, piece in left.items()}
            while running:
                done, _ = wait(running, LOOK_UP_S, FIRST_COMPLETED)
                for future in done:
                    made = future.result()
                    piece = left.pop(running.pop(future))
                    patience.done()
                    yield piece, made  # before a submit, which fails where another worker is gone
                    for at, following in islice(coming, 1):
                        left[at] = following
                        running[pool.submit(outcome, work, following)] = at
        except BrokenProcessPool:
            patience.lost("a process had too little memory, or was ended from outside")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if left:  # somebody stopped this, or a worker is gone: nobody waits for what others have begun
                for process in set(active_children()) - others:
                    process.kill()


def _on_ray(
    workers: Workers, work: Callable[[T], R], coming: Iterator[tuple[int, T]], note: Callable[[str], None]
) -> Iterator[tuple[T, R | UserError]]:
    ray, patience = ray_module(), _Patience(note)
    remote = ray.remote(num_cpus=1, max_retries=0)(_piece)
    again, running = list[T](), dict[Any, T]()
    try:
        while True:
            while len(running) < workers.count:
                following = again.pop(0) if again else next(coming, (0, None))[1]
                if following is None:
                    break
                with lost():
                    running[remote.remote(work, following, workers.nice)] = following
            if not running:
                return
            with lost():
                (done,), _ = ray.wait(list(running), num_returns=1)
            piece = running.pop(done)
            try:
                with lost():
                    made = ray.get(done)
            except ShardsLost as error:
                again.append(piece)
                patience.lost(str(error))
                continue
            patience.done()
            yield piece, made
    except ShardsLost as error:
        remedy = "look at the cluster, then give the same command again: what is done is kept"
        raise UserError(f"Ray is gone: {error}", remedy, EX_TEMPFAIL) from error
    finally:
        for each in running:
            with suppress(Exception):
                ray.cancel(each, force=True)


def _piece(work: Callable[[T], R], piece: T, nice: int) -> R | UserError:
    if nice:
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
    _quiet()
    return outcome(work, piece)


def _begin(nice: int) -> None:
    """In a process of the pool: leave stops to its parent, end with it, give way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    if nice:
        os.nice(nice)
    _quiet()


def _quiet() -> None:
    from daemon.runtime.logs import configure

    configure("error", "auto", "worker")


def _end_with_parent() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(EX_TEMPFAIL)  # what it wrote is whole or not there
