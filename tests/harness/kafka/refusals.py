"""What preflight raises, checked for what all its faults have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from streams.errors import StreamError
from streams.kafka.preflight import Need, preflight
from streams.source import Address, KafkaSettings
from tests.harness.kafka.secured import PASSWORD
from tests.harness.waiting import soon_enough

PROMISED_S = 5.0


def fault(path: str, settings: KafkaSettings, topic: str = "clicks", *needs: Need) -> tuple[type, str]:
    """The kind and the words of what preflight raises, which is in time and tells no password."""
    raised = soon_enough(lambda: _raised(Address("kafka", path, topic, settings), needs), PROMISED_S)
    told = str(raised)
    assert path.split(":", maxsplit=1)[0] in told
    error: BaseException | None = raised
    while error is not None:  # the causes may be logged as well
        assert PASSWORD not in f"{error!r}"
        error = error.__cause__
    return type(raised), told


def _raised(address: Address, needs: Sequence[Need]) -> StreamError:
    with pytest.raises(StreamError) as raised:
        preflight(address, *(needs or ("read",)))
    return raised.value


def assert_fault(path: str, settings: KafkaSettings, kind: type, words: str) -> None:
    found, told = fault(path, settings)
    assert (found, told) == (kind, told)
    assert_words(told, words)


def assert_words(told: str, words: str) -> None:
    __tracebackhide__ = True
    assert re.search(words, told), told
