"""What `serve` says of itself on its metrics page, in one line per alias for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.look.rates import Reading, labelled
from daemon.text import span

FRESHNESS = "tripletd_event_to_served_seconds"


def serving_lines(page: Reading, now_s: float) -> list[tuple[str, str]]:
    """(alias, what it answers with, how fresh that is, what was refused), in the order of the page."""
    return [
        (labels["alias"], "; ".join(_told(page, labels["alias"], value, now_s)))
        for labels, value in labelled(page, "tripletd_serving")
    ]


def _told(page: Reading, alias: str, answers: float, now_s: float) -> Iterator[str]:
    if answers:
        version = _of(page, "tripletd_served_version", alias) or 0
        records = _of(page, "tripletd_served_records", alias) or 0
        yield f"answers with version {version:.0f}, {records:,.0f} records"
    else:
        yield "answers nothing yet"
    newest = _of(page, "tripletd_served_watermark_seconds", alias)
    if newest is not None:
        yield f"newest click in it {span(max(0.0, now_s - newest))} ago"
    count = _of(page, f"{FRESHNESS}_count", alias)
    if count:
        mean = (_of(page, f"{FRESHNESS}_sum", alias) or 0) / count
        yield f"a click was in an answer after {mean:.2f} s on average"
    refused = {
        labels["reason"]: count
        for labels, count in labelled(page, "tripletd_refused_swaps_total")
        if labels["alias"] == alias and count
    }
    if refused:
        yield "refused: " + ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(refused.items()))


def _of(page: Reading, name: str, alias: str) -> float | None:
    return next((value for labels, value in labelled(page, name) if labels.get("alias") == alias), None)
