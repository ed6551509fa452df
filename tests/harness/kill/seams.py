"""Where a learner's disk, signals and waits are put in: names that the product looks up in its modules."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from checkpoints.local import Fs, LocalStore
from checkpoints.manifest import Manifest
from checkpoints.publisher import AsyncPublisher
from daemon.learn import loop, reader, start
from daemon.learn.housekeeping import Housekeeper
from daemon.versions import storage


class Seams:
    """Names replaced in the product's modules and classes; `undo` puts back what was there."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Let `owner.name` be `value`."""
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def put_disk(self, fs: Fs) -> None:
        """Let the learner of this process write through `fs`, small states in the way of large ones."""
        stores = {**storage.STORES, "file": lambda place: LocalStore(Path(place), fs=fs)}
        self.put(storage, "STORES", stores)
        self.put(start, "AsyncPublisher", functools.partial(AsyncPublisher, copy_below=0))

    def write_each_version(self) -> None:
        """Let the loop wait for each version, and for what is done after it: else it would pass over some of
        those that are due, by luck.
        """
        begin, published = AsyncPublisher.begin, Housekeeper.published

        def begin_and_wait(publisher: AsyncPublisher, *args: Any) -> bool:
            began = begin(publisher, *args)
            if publisher._thread is not None:
                publisher._thread.join()
            return began

        def published_and_settled(housekeeper: Housekeeper, version: Manifest) -> None:
            published(housekeeper, version)
            housekeeper.settle(30.0)

        self.put(AsyncPublisher, "begin", begin_and_wait)
        self.put(Housekeeper, "published", published_and_settled)

    def wait_briefly(self) -> None:
        """Let idle waits be short: a life of a learner is lived hundreds of times."""
        self.put(reader, "POLL_SECONDS", 0.01)
        self.put(loop, "WAIT_SECONDS", 0.01)

    def undo(self) -> None:
        """Put back everything, the last first."""
        while self._before:
            owner, name, value = self._before.pop()
            setattr(owner, name, value)
