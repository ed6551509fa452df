"""Every kind of log, under one set of tests."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from streams.address import Address, parse_address
from streams.open import delete_topic, ensure_topic, open_sink, open_source, retain
from streams.source import Sink, Source, TopicIdentity


@dataclass
class Backend:
    """One topic of one kind of log, and whatever was opened on it."""

    address: Address
    opened: list[Source | Sink] = field(default_factory=list)

    def create(self, partitions: int = 1) -> TopicIdentity:
        return ensure_topic(self.address, partitions)

    def delete(self) -> None:
        delete_topic(self.address)

    def source(self) -> Source:
        self.opened.append(source := open_source(self.address))
        return source

    def sink(self) -> Sink:
        self.opened.append(sink := open_sink(self.address))
        return sink

    def retain(
        self,
        max_age_s: float | None = None,
        max_bytes: int | None = None,
        now_ms: int | None = None,
        before: Mapping[int, int] | None = None,
    ) -> dict[int, int]:
        return retain(self.address, max_age_s, max_bytes, now_ms, before=before)


@pytest.fixture(params=["memory", "log"])
def backend(request: pytest.FixtureRequest, tmp_path) -> Iterator[Backend]:
    place = str(tmp_path / "clicks.log") if request.param == "log" else uuid.uuid4().hex
    backend = Backend(parse_address(f"{request.param}:{place}#clicks"))
    yield backend
    for one in backend.opened:
        one.close()
