"""What the page is told: live numbers of every role, the explorer's two sides, objects as people see them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from checkpoints import Ledger, VersionStore
from daemon.config.http import HttpConfig
from daemon.config.model import Config
from daemon.look.live import is_role, live_metrics, not_ready, parsed
from daemon.look.numbers import BUCKETS
from daemon.look.rates import Reading
from daemon.look.series import Series, Target
from daemon.replica.status import NotServing
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from daemon.serve.page.images import ImageFolder
from daemon.serve.page.sources import CannotAnswer, Found, PageSources, Served, Shown
from daemon.serve.query import Answers, Query, Refused
from daemon.serve.wiring.live import Live, Opened
from daemon.serve.wiring.store import served
from daemon.telemetry.health import Health
from streams.items import Display

LOOK_SECONDS = 0.2
"""Longest search through the texts of all objects; what it has found by then is shown."""
TURN_SECONDS = 5.0
"""Longest wait for another look: a version that is loaded for it may take as long."""
TRIES = 4
"""Random rows drawn per object wanted: some are dead."""


def page_sources(
    config: Config, versions: VersionStore, ledger: Ledger, live: Live, series: Series
) -> PageSources:
    """Everything the page shows. Pictures are below the folder of `serve.display`, else of the catalog."""
    beside = config.serve.display or config.serve.catalog or config.catalog.path
    objects = PageObjects(live, ImageFolder(Path(beside).parent) if beside else None)

    def now() -> list[Served]:
        told = [served(one) for one in live.statuses()]
        return [Served(model=one.pop("version"), **one) for one in told]

    aliases = config.serve.aliases
    return PageSources(versions, ledger, series, now, PageExplorer(live), objects, aliases)


def live_series(http: HttpConfig, registry: CollectorRegistry, health: Health) -> Series:
    """The live numbers of every role: of the others by their ports, of this one from its registry."""

    def other(role: str, port: int) -> Reading | None:
        page = live_metrics(http.host, port, BUCKETS)
        return page if is_role(page, role) else None

    targets = [
        Target(role, partial(other, role, port), partial(not_ready, http.host, port))
        for role, port in (("learn", http.learn_port), ("validate", http.validate_port))
    ]
    own = Target("serve", lambda: parsed(generate_latest(registry).decode(), BUCKETS), health.readiness)
    return Series([*targets, own])


class PageExplorer:
    """Nearest objects under an alias or a version; one look at a time, beside the compute thread."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._turn = threading.Lock()

    def neighbours(self, side: str, query: str, k: int) -> Found:
        """See `sources.Explorer`."""
        opened = self._live.opened
        if opened is None:
            raise CannotAnswer("not_serving", "there is no version yet")
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise CannotAnswer("busy", "other comparisons are being made; ask again in a moment")
        try:
            answers = _asked(opened, side, [Query(id=query, k=k)])
        except NotServing as error:
            raise CannotAnswer("not_serving", str(error)) from None
        except Refused as refused:
            raise CannotAnswer(refused.code, str(refused)) from None
        finally:
            self._turn.release()
        result = answers.results[0]
        if isinstance(result, Refused):
            raise CannotAnswer(result.code, str(result))
        return Found(str(answers.model), tuple((hit.id, hit.score) for hit in result))


def _asked(opened: Opened, side: str, queries: Sequence[Query]) -> Answers:
    if not side.isdecimal():
        if side not in opened.replicas:
            raise CannotAnswer("unknown_alias", f"{side[:40]!r} is neither a version nor served here")
        return opened.searcher.search(side, queries)
    with opened.explorer.read(int(side)) as view:
        return opened.searcher.search_view(view, queries)


class PageObjects:
    """The objects that are served, as people see them."""

    def __init__(self, live: Live, images: ImageFolder | None) -> None:
        self._live, self._images = live, images

    def count(self) -> int:
        """Objects that are served now."""
        snapshot = self._snapshot()
        return 0 if snapshot is None else len(snapshot)

    def some(self, text: str, most: int) -> Sequence[Shown]:
        """At most `most` objects whose id or text contains `text`; drawn at random for ""."""
        snapshot = self._snapshot()
        if snapshot is None or not len(snapshot):
            return []
        if not text:
            return self._drawn(snapshot, most)
        found: dict[str, Shown] = {}
        if snapshot.find(text) is not None:
            found[text] = self._shown(snapshot, text)
        for object_id in _containing(snapshot, text, time.monotonic() + LOOK_SECONDS):
            if len(found) >= most:
                break
            found.setdefault(object_id, self._shown(snapshot, object_id))
        return list(found.values())

    def shown(self, ids: Sequence[str]) -> Sequence[Shown]:
        """One per id, in order."""
        snapshot = self._snapshot()
        return [Shown(one) if snapshot is None else self._shown(snapshot, one) for one in ids]

    def image(self, object_id: str) -> bytes | None:
        """The picture's bytes; None for one without, or outside the folder of pictures."""
        snapshot = self._snapshot()
        display = None if snapshot is None else snapshot.display(object_id)
        if display is None or display.image is None or self._images is None:
            return None
        return self._images.read(display.image)

    def _snapshot(self) -> IndexSnapshot | None:
        opened = self._live.opened
        return None if opened is None else opened.catalog.snapshot()

    def _drawn(self, snapshot: IndexSnapshot, most: int) -> list[Shown]:
        parts = snapshot.parts
        chosen: dict[str, None] = {}
        for _ in range(TRIES * most):
            (part,) = random.choices(range(len(parts)), [len(part) for part in parts])  # noqa: S311  no secret
            row = random.randrange(len(parts[part]))  # noqa: S311
            if _lives(parts[part], row):
                chosen[snapshot.id_at(part, row)] = None
            if len(chosen) == most:
                break
        return [self._shown(snapshot, one) for one in chosen]

    def _shown(self, snapshot: IndexSnapshot, object_id: str) -> Shown:
        display = snapshot.display(object_id) or Display()
        text = " - ".join(part for part in (display.title, display.text) if part)
        return Shown(object_id, text, display.image is not None and self._images is not None, display.tags)


def _lives(part: IndexPart, row: int) -> bool:
    return part.alive is None or bool(part.alive[row])


def _containing(snapshot: IndexSnapshot, text: str, until: float) -> Iterator[str]:
    """Ids of living objects whose id or shown text contains `text`, any case, until the time is over."""
    wanted = text.casefold()
    for number, part in enumerate(snapshot.parts):
        for row in range(len(part)):
            if row % 256 == 0 and time.monotonic() > until:
                return
            object_id = snapshot.id_at(number, row)
            if not _lives(part, row):
                continue
            display = snapshot.display(object_id) or Display()
            told = (object_id, display.title or "", display.text or "")
            if any(wanted in one.casefold() for one in told):
                yield object_id
