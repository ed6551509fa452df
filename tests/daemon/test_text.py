"""Numbers, times and the words of others as people read them."""

from __future__ import annotations

import pytest

from daemon.commands.models import print_keys
from daemon.look.overview import KeyRow
from daemon.text import moment, number_runs, size, span


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1_767_225_600_999, "2026-01-01T00:00:00+00:00"),
        (-1, "1969-12-31T23:59:59+00:00"),
        (2**63 - 1, f"{2**63 - 1} ms"),  # a record's time is whatever its writer says
        (-(2**63), f"{-(2**63)} ms"),
    ],
)
def test_a_moment_is_shown_whatever_it_is(ms: int, text: str) -> None:
    assert moment(ms) == text


def test_sizes_spans_and_runs() -> None:
    assert [size(count) for count in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
    assert [span(seconds) for seconds in (-1, 45, 720, 10_800)] == ["0 s", "45 s", "12 m", "3 h"]
    assert number_runs([0, 1, 3, 4, 5, 9]) == "0 to 1, 3 to 5, 9"


def test_a_key_steers_neither_the_terminal_nor_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_keys([KeyRow(key, 1) for key in ("[/no]", "[red]tenant", "\x1b[31m", "a\nb", "\u202e", "é")])
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["key", "[/no]", "[red]tenant", "\\x1b[31m", "a\\nb", "\\u202e", "é"]
