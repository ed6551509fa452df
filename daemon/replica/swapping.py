"""One swap of a whole version: load, verify, form, prepare, warm, flip."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from checkpoints.manifest import Manifest
from daemon.replica.desk import Desk
from daemon.replica.loading import State, load_form, load_state
from daemon.replica.refusals import Refused
from daemon.replica.settings import Hooks, Shelf
from daemon.replica.side import Side
from daemon.replica.sides import Sides

Result = TypeVar("Result")
REST_S = 0.002
"""At most between two phases of a swap, so that those who answer meanwhile get the processor."""

log = structlog.get_logger("tripletd.replica")


class Swapper:
    """Brings versions onto the idle side and flips; the active side answers meanwhile, whatever happens."""

    def __init__(self, shelf: Shelf, hooks: Hooks, sides: Sides[Side], desk: Desk, stepping: bool) -> None:
        self._shelf, self._hooks, self._sides, self._desk = shelf, hooks, sides, desk
        self._stepping = stepping
        self._generation = 0

    def swap(self, number: int) -> tuple[Manifest, dict[str, float]]:
        """Serve version `number` from now on: its manifest, and the seconds that each phase took.

        A replica that steps, and falls back to a version, keeps the form it has and carries it on to that: so
        it follows again within the time of one reading of its state, and the refiner makes the form. The desk
        must be settled. Raises Refused, and serves what was served; the idle side is spoilt then.
        """
        seconds: dict[str, float] = {}
        self._desk.spoil()
        side, active = self._sides.idle, self._sides.active
        state = _timed(seconds, "load", lambda: load_state(self._shelf, number, side.buffers))
        if active.view is not None:
            time.sleep(min(seconds["load"], REST_S))
        if self._stepping and active.view is not None and active.view.formed > 0:
            _timed(seconds, "follow", lambda: side.carry_to(state, active))
        else:
            self._form(state, side, seconds)
        _timed(seconds, "warm", lambda: self._call("warm", self._hooks.warm, side.view))
        _timed(seconds, "flip", self._desk.flip_version)
        return state.manifest, seconds

    def _form(self, state: State, side: Side, seconds: dict[str, float]) -> None:
        """A version's own form, and what is prepared of it."""
        self._generation += 1
        form = _timed(seconds, "form", lambda: load_form(self._shelf, state, side.buffers))
        view = side.take_version(state, form, self._shelf.space.map_id, self._generation)
        prepared = _timed(seconds, "prepare", lambda: self._call("prepare", self._hooks.prepare, view))
        side.view = replace(view, prepared=prepared)
        if self._stepping:
            _timed(seconds, "follow", lambda: side.follow_from(state))

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
