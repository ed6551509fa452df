"""Events that a test writes as it needs them."""

from __future__ import annotations

from contextlib import closing

from streams.open import open_sink
from streams.source import OutRecord
from tests.harness.kill.events import numbered_event
from tests.harness.kill.site import Site


class Written:
    """Writes the events of one site, each the same wherever it is written."""

    def __init__(self, site: Site, seed: int = 8) -> None:
        self._site, self._seed = site, seed
        self.written = 0

    def more(self, count: int) -> None:
        """The next `count` events, spread over the partitions in turn."""
        self.up_to(self.written + count)

    def up_to(self, end: int) -> None:
        """Events until there are `end`."""
        numbers = range(self.written, max(end, self.written))
        with closing(open_sink(self._site.address)) as sink:
            sink.send([self._record(number) for number in numbers])
        self.written = numbers.stop

    def _record(self, number: int) -> OutRecord:
        case = self._site.case
        value = numbered_event(self._seed, number, case.sparse, case.key(number))
        return OutRecord(value, partition=number % self._site.partitions)
