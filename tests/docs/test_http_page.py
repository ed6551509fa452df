"""docs/http.md tells of every operation, parameter, field and status that the live OpenAPI document has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.docs.http_page import BEGIN, END, PAGE, live_document, operations, reference

AGAIN = "run `python -m tests.docs.http_page`"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return live_document()


@pytest.fixture(scope="module")
def written() -> str:
    return PAGE.read_text().split(BEGIN)[1].split(END)[0]


def facts(text: str) -> set[str]:
    """Headings, the names in first columns under each, and the statuses."""
    found: set[str] = set()
    heading = ""
    for line in text.splitlines():
        if line.startswith("### "):
            heading = line
            found.add(heading)
        elif match := re.match(r"\| `([\w-]+)` \|", line):
            found.add(f"{heading}: {match.group(1)}")
        found |= {f"{heading}: {status}" for status in re.findall(r"\b[45]\d\d\b", line)}
    return found


def test_the_page_has_what_the_document_has_and_nothing_else(document: dict[str, Any], written: str) -> None:
    assert facts(written) == facts(reference(document)), AGAIN


def test_the_reference_leaves_no_operation_out(document: dict[str, Any]) -> None:
    heads = {line for line in reference(document).splitlines() if line.startswith("### ")}
    assert {f"### {method} {path}" for method, path, _ in operations(document)} <= heads
