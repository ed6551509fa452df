"""The look at memory before `up` starts its roles, in a process that is to stay small.

What learners need is known to the learners, whose import takes seconds and more than 100 MB, as much as `up`
takes otherwise. So a rough bound by the configuration alone comes first; only where that is more than there
is, a child of this process works it out, and ends.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

from daemon.config import Config
from daemon.exits import UserError
from daemon.memory.room import memory_room
from daemon.runtime.logs import get_logger

PROGRAMS = 220 << 20
"""Of each process before it has an array of its own, and of events under way, at most."""
COPIES = 12
"""States that a process holds at most, with forms, a second side for each of four names, and what is read."""
MATRICES = 4
"""Matrices of a learner at most: those of OASIS with a softmax."""


def require_up(config: Config, established: bool, serves: bool) -> None:
    """Raises UserError where the roles that `up` starts cannot be had together. established: there may be
    answers to keep: then a warning, as each role looks for itself. serves: whether serve is among them."""
    room = memory_room()
    if room is None or rough_bound(config) <= room.free:
        return
    found = _asked_of_a_child(config, serves)
    if found is None:
        return
    if not established:
        raise found
    get_logger().warning("memory will not do for all roles", why=found.message, remedy=found.remedy)


def rough_bound(config: Config) -> int:
    """Bytes that the roles of `up` surely do not exceed, objects of the catalog left out."""
    dim = sum(width for view in config.space.views.values() for width in view.widths())
    learner = config.learner
    numbers = 2 * dim * max(getattr(learner, "rank", 0), getattr(learner, "memory", 0), 32)
    kept = getattr(learner, "objects", 0), getattr(learner, "triplets", 0)
    kernels = 1 + len(getattr(learner, "kernels", ()))
    numbers += kept[0] * (2 * dim + 64 * kernels) + kept[1] * 4 * kernels
    slots = max(1, config.keys.slots)
    state = 4 * slots * (MATRICES * dim * dim + numbers) + 4096 * slots + 40 * learner.dedupe_window
    processes = 2 + max(1, config.shards.count) * 2 + config.serve.processes
    return processes * (PROGRAMS + COPIES * state)


def _asked_of_a_child(config: Config, serves: bool) -> UserError | None:
    context = multiprocessing.get_context("fork")  # before there is any thread
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(config, serves, there), daemon=True)
    child.start()
    there.close()
    try:
        answer = here.recv()
    except EOFError:  # it was ended, perhaps for want of memory: each role looks for itself
        answer = None
    child.join()
    return None if answer is None else UserError(*answer)


def _answer(config: Config, serves: bool, there: Connection) -> None:
    from daemon.exits import as_user_error
    from daemon.memory.fits import refusal_of_up

    try:
        found = refusal_of_up(config, serves)
    except Exception as error:
        found = as_user_error(error)
        if found is None:
            raise
    there.send(None if found is None else (found.message, found.remedy, found.code))
    there.close()
