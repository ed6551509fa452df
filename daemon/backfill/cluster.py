"""Where the learners of a backfill run: one after the other in this process, or as actors of Ray.

An actor that is gone, or the Ray that it ran on, is a `ShardsLost`: its memory held what no version holds, so
all begin again from the newest version. Ray itself restarts nothing: who goes on from where is decided in one
place.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from checkpoints import Version
from daemon.backfill.plan import UnitPlace
from daemon.backfill.rounds import ShardsLost
from daemon.backfill.shard import OpenReader, ShardJob, ShardLearner, ShardNews
from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.versions.contents import Arrays

STORE_BYTES = 256 << 20
"""Of a local Ray: what is passed from process to process at once, some copies of W."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backfill leaves to live traffic. events_per_second: of all shards together, 0: no limit. nice:
    by how much its processes give way."""

    events_per_second: float = 0.0
    nice: int = 0


class PacedShard:
    """A shard in its process, within its limits."""

    def __init__(
        self, job: ShardJob, limits: Limits, own_process: bool, open_reader: OpenReader | None = None
    ) -> None:
        if own_process and limits.nice:
            os.nice(limits.nice)
        self._job, self._open_reader = job, open_reader
        self._shard: ShardLearner | None = None
        self._per_second, self._until = limits.events_per_second / job.recipe.shards, time.monotonic()

    def begin(self, manifest: Any, arrays: Any, at: UnitPlace) -> None:
        """See `ShardLearner`, made here: what it refuses is told by a call, not by its actor's end."""
        if self._shard is None:
            self._shard = ShardLearner(self._job, self._open_reader)
        self._shard.begin(manifest, arrays, at)

    def learn(self, learner: Any, fed: int, wanted: bool) -> ShardNews:
        """See `ShardLearner`; then wait, so that the rate is kept. What was slower is not made up for."""
        assert self._shard is not None
        news = self._shard.learn(learner, fed, wanted)
        if self._per_second:
            self._until = max(self._until, time.monotonic()) + news.records / self._per_second
            time.sleep(max(0.0, self._until - time.monotonic()))
        return news

    def whole(self) -> Arrays:
        """See `ShardLearner`."""
        assert self._shard is not None
        return self._shard.whole()

    def process(self) -> int:
        """The id of the process that it runs in."""
        return os.getpid()


class ShardsHere:
    """All shards in this process, one after the other. open_reader: of a single one, see `ShardLearner`."""

    def __init__(
        self, jobs: Sequence[ShardJob], limits: Limits, open_reader: OpenReader | None = None
    ) -> None:
        self._shards = [PacedShard(job, limits, False, open_reader) for job in jobs]

    def begin(self, version: Version, at: Sequence[UnitPlace]) -> None:
        """See `Shards`."""
        for shard, place in zip(self._shards, at, strict=True):
            shard.begin(version.manifest, version.arrays, place)

    def learn(self, learner: Arrays | None, fed: int, wanted: bool) -> list[ShardNews]:
        """See `Shards`."""
        return [shard.learn(learner, fed, wanted) for shard in self._shards]

    def whole(self) -> list[Arrays]:
        """See `Shards`."""
        return [shard.whole() for shard in self._shards]


class ShardsOnRay:
    """An actor for each shard, of one core each."""

    def __init__(self, jobs: Sequence[ShardJob], limits: Limits) -> None:
        ray = ray_module()
        kind = ray.remote(num_cpus=1, max_restarts=0)(PacedShard)
        with lost():
            self._actors = [kind.remote(job, limits, True) for job in jobs]

    def begin(self, version: Version, at: Sequence[UnitPlace]) -> None:
        """See `Shards`."""
        with lost():
            shared = ray_module().put(version.arrays)
            pairs = zip(self._actors, at, strict=True)
            ray_module().get([actor.begin.remote(version.manifest, shared, place) for actor, place in pairs])

    def learn(self, learner: Arrays | None, fed: int, wanted: bool) -> list[ShardNews]:
        """See `Shards`."""
        with lost():
            shared = None if learner is None else ray_module().put(learner)
        return self._all("learn", shared, fed, wanted)

    def whole(self) -> list[Arrays]:
        """See `Shards`."""
        return self._all("whole")

    def processes(self) -> list[int]:
        """The ids of their processes."""
        return self._all("process")

    def _all(self, method: str, *given: Any) -> list[Any]:
        with lost():
            return list(ray_module().get([getattr(actor, method).remote(*given) for actor in self._actors]))

    def end(self) -> None:
        """End the actors."""
        with suppress(Exception):
            for actor in self._actors:
                ray_module().kill(actor)


@contextmanager
def lost() -> Iterator[None]:
    """Errors of Ray as ShardsLost; what a shard raised itself, such as a UserError, as that."""
    ray = ray_module()
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, BaseException) and not isinstance(cause, ray.exceptions.RayError):
            raise cause from None
        raise ShardsLost(_first_line(error)) from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise ShardsLost(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


def ray_module() -> Any:
    """Ray. UserError where it is not installed."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        message = "Ray is not installed, on which history is learned by several processes"
        remedy = 'pip install "tripletd[backfill]"; or --here, in this process alone'
        raise UserError(message, remedy, EX_CONFIG) from None
    return ray


KNOCK_S = 5.0
"""For so long a cluster may take to accept a connection; Ray itself tries for minutes."""


def _knock(address: str) -> None:
    """Raise ConnectionError or TimeoutError where nobody listens at HOST:PORT; other addresses are Ray's."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
        except OSError as error:
            raise ConnectionError(f"no connection: {error.strerror or error}") from error


@contextmanager
def ray_running(address: str | None, cores: int) -> Iterator[None]:
    """A Ray of its own on this machine, ended afterwards; with an address a cluster that is there. In a
    process that has one already, that one. Raises UserError."""
    ray = ray_module()
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    own: dict[str, Any] = (
        {"num_cpus": cores, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        if address is None
        else {"address": address}
    )
    try:
        if address is not None:
            _knock(address)
        ray.init(**own, logging_level="ERROR", log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = "on this machine" if address is None else f"at {address}"
        remedy = "check that the cluster is up and reachable from here; without --address one is started here"
        raise UserError(f"no Ray {where}: {_first_line(error)}", remedy, EX_UNAVAILABLE) from None
    try:
        yield
    finally:
        ray.shutdown()
