"""Opening the versions and the ledger at an address: the one place that knows which store keeps them.

An address is a folder's path, or `scheme://...` of a store in `STORES`. To add a store, implement
`checkpoints.store.BlobStore` and name it there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from checkpoints import BlobStore, Ledger, VersionStore
from checkpoints.local import LocalStore
from daemon.config import Config
from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError

STORES: Mapping[str, Callable[[str], BlobStore]] = {"file": lambda place: LocalStore(Path(place))}
"""Scheme of an address -> what opens the store at the rest of it. A bare path is of `file`."""

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What lies at one address."""

    versions: VersionStore
    ledger: Ledger


def open_store(address: str | Path) -> Checkpoints:
    """Versions and ledger at an address, in objects of their own; nothing is written or looked at yet.

    Raises UserError (78) for a scheme that no store has.
    """
    scheme, place = _split(address)
    if scheme not in STORES:
        raise UserError(
            f"checkpoints: there is no store for {scheme}://",
            f"name a folder, or one of {', '.join(f'{known}://' for known in STORES)}",
            EX_CONFIG,
        )
    store = STORES[scheme](place)
    return Checkpoints(VersionStore(store), Ledger(store))


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
    """(scheme, the rest)."""
    found = _SCHEME.fullmatch(str(address))
    return (found[1], found[2]) if found else ("file", str(address))
