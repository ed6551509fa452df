"""No input ends a role, and none costs more than a second or 100 MB."""

from __future__ import annotations

import time
from itertools import islice
from random import Random

import pytest

from tests.fuzz.law import ForeignInput, LawBroken, all_inputs, obey, tried

COUNT = 300
"""Of each input, beside its seeds and those that once broke it; `python -m tests.fuzz.law` tries millions."""


@pytest.mark.parametrize("foreign", all_inputs(), ids=lambda foreign: foreign.name)
def test_no_input_breaks_the_law(foreign: ForeignInput) -> None:
    accepted = [obey(foreign, value) for value in islice(tried(foreign, Random(1)), COUNT)]
    assert any(accepted), "not even a seed is accepted: the law says nothing here"


def test_the_law_sees_an_exception_that_is_not_documented() -> None:
    foreign = ForeignInput("law", lambda value: value.decode(), (b"a",), (TypeError,))
    with pytest.raises(LawBroken, match="UnicodeDecodeError"):
        obey(foreign, b"\xff")


def test_the_law_sees_time_and_memory() -> None:
    with pytest.raises(LawBroken, match="processor time"):
        obey(ForeignInput("law", _work, (b"a",)), b"a")
    with pytest.raises(LawBroken, match="MB"):
        obey(ForeignInput("law", lambda value: bytearray(200_000_000), (b"a",)), b"a")


def _work(value: bytes) -> None:
    end = time.thread_time() + 1.1
    while time.thread_time() < end:
        pass
