"""Opening the versions and the ledger at an address, and the line that a version descends from.

An address is a folder's path, or `scheme://...` of a store in `STORES`; what is below it (`at`) is a store of
its own. To add a store, implement `checkpoints.store.BlobStore` and name it there.
This is the one place that knows which store keeps the versions. A line goes parent by parent, pruned versions
included.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from checkpoints import BlobStore, Ledger, Manifest, ObjectSettings, VersionStore, history, open_object_store
from checkpoints.local import LocalStore
from checkpoints.manifest import ScheduleEntry
from checkpoints.store import BadKey, CheckpointError, Unreachable
from daemon.config import Config
from daemon.config.objects import settings_of
from daemon.config.values import SCHEMES
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_UNAVAILABLE, UserError


def object_settings(address: str) -> ObjectSettings:
    """How the bucket of an address is reached, as [checkpoints] says."""
    section = settings_of(address)
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    usual = user / "tripletd" / "states" if user.is_absolute() else None
    folder = Path(section.cache) if section.cache else usual
    return ObjectSettings(section.endpoint, section.region, section.timeout, folder, section.cache_size)


def _bucket(scheme: str, place: str) -> BlobStore:
    address = f"{scheme}://{place}"
    try:
        return open_object_store(address, object_settings(address))
    except (ValueError, BadKey) as error:
        raise UserError(f"checkpoints: {error}", "correct checkpoints.path", EX_CONFIG) from error
    except Unreachable as error:  # nothing was asked yet: the package or the environment
        raise UserError(f"{error.place}: {error.problem}", error.remedy, EX_CONFIG) from error


STORES: Mapping[str, Callable[[str], BlobStore]] = {
    "file": lambda place: LocalStore(Path(place)),
    **{scheme: partial(_bucket, scheme) for scheme in SCHEMES},
}
"""Scheme of an address -> what opens the store at the rest of it. A bare path is of `file`."""

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The stores at one address."""

    versions: VersionStore
    ledger: Ledger
    address: str = ""

    def at(self, prefix: str) -> Checkpoints:
        """The stores of what is below: of a folder in a folder, of a longer prefix of a bucket."""
        return open_store(f"{self.address.rstrip('/')}/{prefix.strip('/')}")


def open_store(address: str | Path) -> Checkpoints:
    """Versions and ledger at an address, in objects of their own; nothing is written or looked at yet.

    Raises UserError (78) for a scheme that no store has.
    """
    scheme, place = _split(address)
    if scheme not in STORES:
        remedy = f"name a folder, or one of {', '.join(f'{known}://' for known in STORES)}"
        raise UserError(f"checkpoints: there is no store for {scheme}://", remedy, EX_CONFIG)
    store = STORES[scheme](place)
    return Checkpoints(VersionStore(store), Ledger(store), str(address))


def open_existing(address: str | Path, why: str, remedy: str) -> Checkpoints:
    """As `open_store`, for those that only read: UserError (69) where a folder is not there, as reading makes
    none. why: what follows from that.
    """
    scheme, place = _split(address)
    if scheme == "file" and not Path(place).is_dir():
        raise UserError(f"{place}: no such folder{why}", remedy, EX_UNAVAILABLE)
    return open_store(address)


def open_for_reading(config: Config) -> tuple[VersionStore, Ledger]:
    """Versions and ledger of [checkpoints]; raises as `open_existing`."""
    found = open_existing(
        config.checkpoints.path,
        ", so there are no versions yet (checkpoints.path)",
        "start `tripletd learn`, or name the configuration it runs with: --config FILE",
    )
    return found.versions, found.ledger


def _split(address: str | Path) -> tuple[str, str]:
    found = _SCHEME.fullmatch(str(address))
    return (found[1], found[2]) if found else ("file", str(address))


@dataclass(frozen=True, slots=True)
class Link:
    """One version of a line. `manifest` is None where the version was pruned or cannot be read."""

    number: int
    parent: int | None
    schedule: tuple[ScheduleEntry, ...]
    runtime: Mapping[str, Any]
    manifest: Manifest | None


def ancestry(versions: VersionStore, number: int) -> Iterator[Link]:
    """The version, its parent and so on to the first. Pruned ones come from the history that pruning left.

    Raises UserError where the line breaks off: neither the version nor its line of history can be read.
    """
    pruned: dict[Any, Mapping[str, Any]] | None = None
    at: int | None = number
    while at is not None:
        try:
            manifest = versions.manifest(at)
            link = Link(at, manifest.parent, manifest.schedule, manifest.runtime, manifest)
        except CheckpointError:
            if pruned is None:
                pruned = {record["number"]: record for record in history(versions.store)}
            link = _pruned(pruned.get(at, {}), at)
        yield link
        at = link.parent


def line(versions: VersionStore, from_version: int, to_version: int) -> list[Link]:
    """The versions after `from_version` up to `to_version`. UserError when the one does not lead there."""
    links: list[Link] = []
    number: int | None = to_version
    for link in ancestry(versions, to_version):
        number = link.number
        if number <= from_version:
            break
        links.append(link)
        number = link.parent
    if number != from_version:
        message = f"version {to_version} does not descend from version {from_version}"
        remedy = f"its line leads to {'none' if number is None else number}; replay from a version on it"
        raise UserError(message, remedy, EX_DATAERR)
    return links[::-1]


def _pruned(record: Mapping[str, Any], number: int) -> Link:
    if "schedule" not in record:
        message = f"the schedule of version {number} is lost: neither it nor its line of history can be read"
        raise UserError(message, "replay from a later version", EX_DATAERR)
    schedule = tuple(entry if isinstance(entry, dict) else tuple(entry) for entry in record["schedule"])
    return Link(number, record["parent"], schedule, record.get("runtime", {}), None)
