"""One swap of a whole version: load, verify, form, prepare, warm, flip."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from checkpoints.manifest import Manifest
from daemon.replica.desk import Desk
from daemon.replica.loading import load
from daemon.replica.refusals import Refused
from daemon.replica.settings import Hooks, Shelf
from daemon.replica.side import Side
from daemon.replica.sides import Sides
from daemon.versions.serving_form import power_of

Result = TypeVar("Result")

log = structlog.get_logger("tripletd.replica")


class Swapper:
    """Brings versions onto the idle side and flips; the active side answers meanwhile, whatever happens."""

    def __init__(self, shelf: Shelf, hooks: Hooks, sides: Sides[Side], desk: Desk, stepping: bool) -> None:
        self._shelf, self._hooks, self._sides, self._desk = shelf, hooks, sides, desk
        self._stepping = stepping
        self._generation = 0

    def swap(self, number: int) -> tuple[Manifest, dict[str, float]]:
        """Serve version `number` from now on: its manifest, and the seconds that each phase took.

        The desk must be settled. Raises Refused, and serves what was served; the idle side is spoilt then.
        """
        seconds: dict[str, float] = {}
        self._desk.spoil()
        self._generation += 1
        side = self._sides.idle
        loaded = _timed(seconds, "load", lambda: load(self._shelf, number, side.buffers))
        view = side.take_version(loaded, self._shelf.space.map_id, self._generation)
        prepared = _timed(seconds, "prepare", lambda: self._call("prepare", self._hooks.prepare, view))
        side.view = replace(view, prepared=prepared)
        if self._stepping:
            power = power_of(self._shelf.serving)
            _timed(seconds, "follow", lambda: side.follow_from(loaded, power))
        ready = side.view
        _timed(seconds, "warm", lambda: self._call("warm", self._hooks.warm, ready))
        _timed(seconds, "flip", self._desk.flip_version)
        return loaded.manifest, seconds

    def _call(self, reason: str, hook: Callable[[Any], Any] | None, view: Any) -> Any:
        try:
            return None if hook is None else hook(view)
        except Exception as error:
            log.exception("a version cannot be made ready", version=view.model.version, phase=reason)
            raise Refused(reason, f"version {view.model.version}: {type(error).__name__}: {error}") from error


def _timed(seconds: dict[str, float], phase: str, work: Callable[[], Result]) -> Result:
    began = time.monotonic()
    try:
        return work()
    finally:
        seconds[phase] = time.monotonic() - began
