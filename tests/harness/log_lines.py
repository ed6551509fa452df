"""What a process logs, read while it goes on."""

from __future__ import annotations

import json
from typing import Any


def json_lines(text: str) -> list[dict[str, Any]]:
    """The lines of JSON in a log that is being written. Of the last line a reader may see only what lies on
    one page of the file, though it is written at once: without its end it is left out.
    """
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
