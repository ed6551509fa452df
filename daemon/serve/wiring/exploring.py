"""The explorer of the page: nearest objects under an alias or any version."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from daemon.replica.status import NotServing
from daemon.serve.page.sources import CannotAnswer, Found
from daemon.serve.query import Answers, Query, Refused
from daemon.serve.wiring.apart import Allowance, Apart, Busy
from daemon.serve.wiring.live import Live, Opened

TURN_SECONDS = 5.0
"""Longest wait for another look: a version that is loaded for it may take as long."""
LOOK_SECONDS = 55.0
"""Longest look, with a large version that is loaded for it."""


class PageExplorer:
    """Looks beside the compute thread: one at a time in `apart`, loading within `allowance`."""

    def __init__(self, live: Live, apart: Apart, allowance: Allowance) -> None:
        self._live, self._apart, self._allowance = live, apart, allowance

    def neighbours(self, side: str, query: str, k: int, key: str | None) -> Found:
        """See `sources.Explorer`."""
        opened = opened_of(self._live)

        def look() -> Answers:
            return self._asked(opened, side, [Query(id=query, k=k, key=key)])

        try:
            answers = self._apart.call(look, TURN_SECONDS, LOOK_SECONDS)
        except Busy as busy:
            raise busy_of(busy) from None
        except NotServing as error:
            raise CannotAnswer("not_serving", str(error)) from None
        except Refused as refused:
            raise CannotAnswer(refused.code, str(refused)) from None
        result = answers.results[0]
        if isinstance(result, Refused):
            raise CannotAnswer(result.code, str(result))
        return Found(str(answers.model), tuple((hit.id, hit.score) for hit in result))

    def _asked(self, opened: Opened, side: str, queries: Sequence[Query]) -> Answers:
        if not side.isdecimal():
            if side not in opened.replicas:
                raise CannotAnswer("unknown_alias", f"{side[:40]!r} is neither a version nor served here")
            return opened.searcher.search(side, queries)
        number = int(side)
        spending: AbstractContextManager[None] = nullcontext()
        if not opened.explorer.is_open(number):
            spending = self._allowance.spending()
        with spending, opened.explorer.read(number) as view:
            return opened.searcher.search_view(view, queries)


def opened_of(live: Live) -> Opened:
    """The parts. CannotAnswer until there is a version."""
    if live.opened is None:
        raise CannotAnswer("not_serving", "there is no version yet")
    return live.opened


def busy_of(busy: Busy) -> CannotAnswer:
    """The same in the page's words."""
    return CannotAnswer("busy", f"{busy}; ask again in {busy.seconds:.0f} s")
