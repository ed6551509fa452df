"""A study as it is made: which objects are asked about, and what both systems find for them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from daemon.config.schema import RANDOM, Config
from daemon.exits import EX_CONFIG, EX_DATAERR, UserError
from daemon.ratings.kept import RatingsFile, ratings_path
from daemon.ratings.study import LIST, MOST_QUERIES, RatedSystem, Study, StudyQuery, StudySettings
from daemon.serve.http.offload import LowPriorityExecutor
from daemon.serve.live import Live
from daemon.serve.page.answers import CannotAnswer
from daemon.serve.page.objects import seeded_ids
from daemon.serve.page.rating import RatingSources
from daemon.serve.page.sources import PageExplorer, opened_of
from daemon.serve.query import QueryError

TURN_SECONDS, MAKE_SECONDS = 5.0, 120.0
"""Longest waits: for another look, and for a study, which may load a version and search 400 times."""
POOL = 2_000
"""Objects drawn from the catalog, from which random ones are taken."""
_MOST_BYTES = 1 << 20


def rating_sources(config: Config, live: Live, explorer: PageExplorer) -> RatingSources | None:
    """The study of [serve.ratings]; None where it is switched off.

    Raises UserError: the file of ratings cannot be read, or has a study of this name by other settings; the
    file of ids.
    """
    wanted = config.serve.ratings
    if not wanted.enabled:
        return None
    ids, digest = read_ids(Path(wanted.ids)) if wanted.ids else ((), "")
    settings = StudySettings(
        config.serve.rated, len(ids) if ids else wanted.queries, wanted.seed, wanted.key, digest
    )
    file = RatingsFile(ratings_path(config), wanted.size)
    begun = file.known().studies.get(wanted.study)
    if begun is not None and begun.settings != settings:
        message = f"serve.ratings: the study {wanted.study!r} was begun with other settings"
        raise UserError(message, "set them back, or give serve.ratings.study another name", EX_CONFIG)
    maker = StudyMaker(live, explorer, wanted.study, settings, ids)
    return RatingSources(wanted.study, wanted.question, settings.systems, file, maker.make)


def read_ids(path: Path) -> tuple[tuple[str, ...], str]:
    """The ids of a file, one per line, each once, and the digest of what it holds. Raises UserError."""
    with path.open("rb") as file:
        body = file.read(_MOST_BYTES)
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text", "save it as UTF-8", EX_DATAERR) from None
    ids = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not 0 < len(ids) <= MOST_QUERIES:
        message = f"{path}: {len(ids):,} ids, and a study asks about 1 to {MOST_QUERIES} objects"
        raise UserError(message, "correct serve.ratings.ids", EX_DATAERR)
    return ids, blake2b(body, digest_size=12).hexdigest()


class StudyMaker:
    """Finds the lists of a study, off the threads that answer.

    ids: what is asked about; none: drawn from the catalog. All lists of a system are by one model.
    """

    def __init__(
        self, live: Live, explorer: PageExplorer, name: str, settings: StudySettings, ids: Sequence[str]
    ) -> None:
        self._live, self._explorer, self._name = live, explorer, name
        self._settings, self._ids = settings, ids
        self._executor = LowPriorityExecutor("tripletd-rating", waiting=1)

    def make(self) -> Study:
        """The study with its lists as they are now. Raises CannotAnswer, Busy."""
        why = self._live.not_ready()
        if why is not None:
            raise CannotAnswer("not_serving", why)
        return self._executor.call(self._made, TURN_SECONDS, MAKE_SECONDS)

    def _made(self) -> Study:
        settings, catalog = self._settings, opened_of(self._live).catalog
        pool = seeded_ids(catalog.current, max(POOL, settings.queries), settings.seed)
        wanted = list(self._ids) or pool[: settings.queries]
        found = [self._found(system, wanted, pool) for system in settings.systems]
        (first, firsts), (second, seconds) = found
        queries = tuple(
            StudyQuery(query, (one, other))
            for query, one, other in zip(wanted, firsts, seconds, strict=True)
            if one and other
        )
        if not queries:
            raise CannotAnswer("no_objects", "no object that is asked about has nearest objects here")
        return Study(self._name, settings, (first, second), queries, time.time_ns() // 1_000_000)

    def _found(
        self, system: str, wanted: Sequence[str], pool: Sequence[str]
    ) -> tuple[RatedSystem, list[tuple[str, ...]]]:
        """What answered, and its list for each; empty for an object that is not in the catalog."""
        if system == RANDOM:
            return RatedSystem(RANDOM, ""), [_others(one, pool, self._settings.seed) for one in wanted]
        answers = self._explorer.lists(system, wanted, LIST, self._settings.key or None)
        lists = [
            () if isinstance(hits, QueryError) else tuple(hit.id for hit in hits) for hits in answers.results
        ]
        return RatedSystem(system, str(answers.model)), lists


def _others(query: str, pool: Sequence[str], seed: int) -> tuple[str, ...]:
    draw = random.Random(f"{seed} {query}")  # noqa: S311  no secret
    drawn = draw.sample(range(len(pool)), min(LIST + 1, len(pool)))
    return tuple(pool[one] for one in drawn if pool[one] != query)[:LIST]
