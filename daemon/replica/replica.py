"""A replica of one alias: follows it in threads of its own, and gives readers a consistent model."""

from __future__ import annotations

from contextlib import AbstractContextManager

from daemon.replica.settings import Following, Hooks, Shelf, Steps
from daemon.replica.status import ReplicaStatus
from daemon.replica.view import View


class Replica:
    """Follows `alias`: `latest`, `best`, `stable`, a pinned name or a version's number.

    With `steps` the learner is followed event by event behind the newest version, else whole versions.
    Memory: two sides of one d x d matrix each (4 d^2 bytes), two matrices with `steps` up to
    serving.full_max_dim dimensions, and with `steps` one more to make forms from; none is allocated per swap.
    """

    def __init__(
        self,
        alias: str,
        shelf: Shelf,
        following: Following = Following(),
        hooks: Hooks = Hooks(),
        steps: Steps | None = None,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Begin to follow; returns at once. `status().model` says when something is served."""
        raise NotImplementedError

    def read(self) -> AbstractContextManager[View]:
        """A consistent model for the length of the block. Raises NotServing with the reason."""
        raise NotImplementedError

    def prepare_again(self) -> None:
        """Have `prepare` called anew for the served model, off the path (the items changed); returns at once."""
        raise NotImplementedError

    def status(self) -> ReplicaStatus:
        """What is served, since when, why not newer, and what happened so far."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all threads, within seconds; what was served can still be read."""
        raise NotImplementedError
