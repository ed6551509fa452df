"""Versions by number, for looking at them beside the served one: few, loaded when asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from daemon.replica.settings import Hooks, Shelf
from daemon.replica.view import View


class Explorer:
    """Opens any version by number; at most `room` stay open, least recently used go first."""

    def __init__(self, shelf: Shelf, hooks: Hooks = Hooks(), room: int = 2) -> None:
        raise NotImplementedError

    def read(self, number: int) -> AbstractContextManager[View]:
        """The version's model. Loads it when it is not open, in the caller's thread (seconds). Raises
        NotServing with the reason when there is no such version or it is refused.
        """
        raise NotImplementedError
