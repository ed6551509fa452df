"""The map of CONTRIBUTING.md leads somewhere: every path exists, and so does every name in its file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("checkpoints", "daemon", "deploy", "docs", "learners", "streams", "tests")
PATH = re.compile(rf"`((?:{'|'.join(TOPS)})(?:/[\w.-]+)*/?)`")
NAMES = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./-]+)` \((`\w+`(?:, `\w+`)*)\)")
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("## Where to change what")[1].split("\n## ")[0]
ROWS = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]


def test_there_are_enough_rows() -> None:
    assert len(ROWS) >= 20
    assert len({row.split("|")[1] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_row_leads_to_what_is_there(row: str) -> None:
    paths = PATH.findall(row)
    assert paths, "a row without a path"
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for path, names in NAMES.findall(row):
        text = (ROOT / path).read_text()
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^(?:class |def |    def )?{name}\b", text, re.MULTILINE), f"{name} in {path}"
