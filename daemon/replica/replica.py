"""A replica of one alias: follows it in threads of its own, and gives readers a consistent model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints.aliases import LATEST
from daemon.replica.board import Board
from daemon.replica.carrying import carry_of
from daemon.replica.desk import Desk
from daemon.replica.follower import Follower
from daemon.replica.listener import Listener
from daemon.replica.loading import Buffers, state_room
from daemon.replica.model import ModelId
from daemon.replica.refine import NICE, Refiner, give_way
from daemon.replica.settings import Flip, Following, Hooks, Shelf, Steps
from daemon.replica.side import Side
from daemon.replica.sides import Sides
from daemon.replica.status import NotServing, ReplicaStatus
from daemon.replica.stepping import Stepper
from daemon.replica.swapping import Swapper
from daemon.replica.view import View

CLOSE_S = 10.0
FOLLOWING, HOOKS = Following(), Hooks()

log = structlog.get_logger("tripletd.replica")


class Replica:
    """Follows `alias`: `latest`, `best`, `stable`, a pinned name or a version's number.

    With `steps`, which `latest` alone can have, the learner is followed event by event behind the newest
    version; else whole versions are. Memory: two sides of the learner's state (W: 4 d^2 bytes) each, where
    its form is a matrix of that too, and with `steps` of a third; with `steps` one more state to make forms
    from. All of it is allocated here, none per swap.
    """

    def __init__(
        self,
        alias: str,
        shelf: Shelf,
        following: Following = FOLLOWING,
        hooks: Hooks = HOOKS,
        steps: Steps | None = None,
    ) -> None:
        if steps is not None and alias != LATEST:
            raise ValueError(f"only {LATEST} can be followed step by step, not {alias}")
        self._alias, self._hooks, self._stepping = alias, hooks, steps is not None
        self._board, self._stop = Board(alias), threading.Event()
        space, carry = shelf.space, carry_of(shelf.space, shelf.serving)
        self._sides = Sides(
            *(Side(Buffers.of(space, shelf.serving, self._stepping), carry) for _ in range(2))
        )
        desk = Desk(self._sides, space.algorithm, following.drain_s)
        swapper = Swapper(shelf, hooks, self._sides, desk, self._stepping)
        self._follower = Follower(
            alias=alias,
            shelf=shelf,
            look_every_s=following.look_every_s,
            desk=desk,
            swapper=swapper,
            board=self._board,
            told=self._tell,
            looked=hooks.looked,
        )
        self._refiner = Refiner(
            sides=self._sides,
            spare=state_room(space) if self._stepping else None,
            hooks=hooks,
            following=following,
            results=self._follower.hand_in,
        )
        if steps is not None:
            listener = Listener(alias, steps)
            self._follower.follow(Stepper(desk, listener, self._follower.shown, self._refiner.heard))
        self._threads = [_thread(self._follow, "replica", alias), _thread(self._refiner.run, "refine", alias)]

    def start(self) -> None:
        """Begin to follow; returns at once. `status().model` says when something is served."""
        for thread in self._threads:
            thread.start()

    @contextmanager
    def read(self) -> Iterator[View]:
        """A consistent model for the length of the block. Raises NotServing with the reason."""
        with self._sides.read() as side:
            view = side.view
            if view is None:
                raise NotServing(f"nothing is served as {self._alias} yet: {self.status().why_not_newer}")
            yield view

    def prepare_again(self) -> None:
        """Have `prepare` called anew off the path, since the items have changed; returns at once."""
        self._refiner.ask()

    def status(self) -> ReplicaStatus:
        """What is served, since when, why not newer, and what happened so far."""
        return self._board.status

    def close(self) -> None:
        """Stop all threads; what was served can still be read. A thread that is inside a hook or a load is
        waited for CLOSE_S at most.
        """
        self._stop.set()
        self._refiner.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(CLOSE_S)

    def _follow(self) -> None:
        if not self._stepping:
            give_way(NICE)
        self._follower.run(self._stop)

    def _tell(self, model: ModelId, result: str, times: NDArray[np.int64]) -> None:
        if self._hooks.flipped is None:
            return
        try:
            self._hooks.flipped(Flip(self._alias, model, result, times))
        except Exception:
            log.exception("who is told of flips failed", alias=self._alias)


def _thread(body: Callable[[], None], name: str, alias: str) -> threading.Thread:
    return threading.Thread(target=body, name=f"{name}-{alias}", daemon=True)
