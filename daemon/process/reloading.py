"""SIGHUP: the configuration is read again. What may change in a running role does, the rest is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from daemon.config import Config
from daemon.config.model import SECTIONS
from daemon.exits import UserError
from daemon.process.logs import get_logger, set_level
from daemon.process.notify import Notifier

LIVE = ("log.level",)
"""Keys that a running role takes over. Whatever else may change W, or what is open, needs a restart."""


def differing(running: Config, fresh: Config) -> list[str]:
    """Keys ("section.key") whose value is another one; the values themselves may be secrets. Pure."""
    before, now = dict(_flat(running)), dict(_flat(fresh))
    return sorted(key for key in {*before, *now} if before.get(key) != now.get(key))


class Reloading:
    """Reads the configuration again when asked; `load` is how it was read, None where there is no way."""

    def __init__(self, running: Config, load: Callable[[], Config] | None, notifier: Notifier) -> None:
        self._running = running
        self._load = load
        self._notifier = notifier
        self._level = running.log.level

    def when(self, asked: bool) -> None:
        """Do it if `asked`. A file that cannot be read changes nothing; the role goes on."""
        if not asked or self._load is None:
            return
        self._notifier.reloading()
        log = get_logger()
        try:
            fresh = self._load()
        except UserError as error:
            log.error("not reloaded: the configuration is not valid, the old one stays", reason=str(error))
        else:
            self._take(fresh)
        self._notifier.ready()

    def _take(self, fresh: Config) -> None:
        log = get_logger()
        refused = [key for key in differing(self._running, fresh) if key not in LIVE]
        if refused:
            log.error("not taken over while running: stop and start again for these keys", keys=refused)
        changed = fresh.log.level != self._level
        log.info("reloaded", changed=["log.level"] if changed else [])  # in the words of the level before
        if changed:
            self._level = fresh.log.level
            set_level(self._level)


def _flat(config: Config) -> Iterator[tuple[str, Any]]:
    for name in SECTIONS:
        yield from _leaves(name, getattr(config, name).model_dump())


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{prefix}.{name}", inner)
    else:
        yield prefix, value
