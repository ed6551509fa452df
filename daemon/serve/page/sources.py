"""What the page is made of: live numbers of every role, what is served, the explorer, objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from checkpoints import Ledger, VersionStore
from daemon.config.schema import Config
from daemon.look.live import RoleStatus, UpStatus, is_of, status_at
from daemon.look.series import Ask, Series
from daemon.replica.view import ReplicaStatus
from daemon.serve.http.offload import LowPriorityExecutor, TimeBudget
from daemon.serve.live import Live
from daemon.serve.page.explore import KeysShown, PageComparer, PageExplorer, keys_shown, own_similarity
from daemon.serve.page.objects import ImageFolder, PageObjects
from daemon.telemetry.server import Health, status_of


@dataclass(frozen=True)
class PageSources:
    """Everything the page shows; asked from the server's threads, never from its event loop.

    series: the ring of live numbers. statuses: how each alias stands. aliases: the names that the explorer
    offers besides version numbers. keys: None where one model answers all. own: what the user's own index
    computes ("cosine"), where version 0 is exactly that; else None.
    """

    versions: VersionStore
    ledger: Ledger
    series: Series
    statuses: Callable[[], Sequence[ReplicaStatus]]
    explorer: PageExplorer
    comparer: PageComparer
    objects: PageObjects
    aliases: Sequence[str]
    keys: Callable[[], KeysShown | None] = lambda: None
    own: Callable[[], str | None] = lambda: None


def page_sources(
    config: Config, versions: VersionStore, ledger: Ledger, live: Live, series: Series
) -> PageSources:
    """Everything the page shows. Pictures are below the folder of `serve.display`, else of the catalog."""
    listed = config.serve.display or config.serve.catalog or config.catalog.path
    executor, budget = LowPriorityExecutor("tripletd-looking"), TimeBudget()
    objects = PageObjects(live, ImageFolder(Path(listed).parent) if listed else None, executor)
    explorer = PageExplorer(live, executor, budget)
    return PageSources(
        versions,
        ledger,
        series,
        live.statuses,
        explorer,
        PageComparer(live, budget),
        objects,
        config.serve.aliases,
        partial(keys_shown, live),
        partial(own_similarity, live),
    )


def live_series(config: Config, registry: CollectorRegistry, health: Health) -> Series:
    """The live numbers of every role: of the others by their ports, of this one from its registry; and why
    one does not run, from the port of `up`.
    """
    http, place = config.http, config.checkpoints.path

    def other(role: str, port: int) -> RoleStatus | None:
        found = status_at(http, port)
        return found if found is not None and is_of(found, role, place) else None

    def trouble() -> Mapping[str, str]:
        up = other("up", http.up_port)
        return up.trouble() if isinstance(up, UpStatus) else {}

    others = (("learn", http.learn_port), ("validate", http.validate_port))
    roles: dict[str, Ask] = {role: partial(other, role, port) for role, port in others}
    return Series({**roles, "serve": lambda: status_of(registry, health)}, trouble=trouble)
