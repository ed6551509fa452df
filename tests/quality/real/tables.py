"""What was measured of sets of real lists as lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.quality.bench.cells import NEWEST, OURS, YOURS
from tests.quality.real.measuring import RankingRow, RealResult

COLUMNS = (
    *("lists learned", "ranking", "AUC of the click", "above your ranking", "position-balanced", "MRR"),
    *("AUC, new queries", "mAP / P@10 by labels"),
)
BEGIN, END = "<!-- real lists -->", "<!-- end of real lists -->"


def with_section(page: str, text: str) -> str:
    """A page with this between BEGIN and END, and everything else as it was."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{text.rstrip()}\n{END}{rest.partition(END)[2]}"


def section(result: RealResult) -> Iterator[str]:
    """A heading, what the set is, a table, and which versions answer."""
    yield f"### {result.name}"
    yield ""
    lists = f"{result.learned:,} lists are learned, {result.judged:,} judge"
    yield f"{result.objects:,} objects; {lists}; the median length is {result.median}. {_new_queries(result)}"
    yield ""
    yield from _table(result.rows)
    yield ""
    for row in result.rows:
        if row.name == OURS:
            (newest,) = (one for one in result.rows if (one.name, one.lists) == (NEWEST, row.lists))
            yield f"- After {row.lists:,} lists: {_answering(row.answering, newest.answering)}."
    if result.stopped:
        counts = ", ".join(f"{count:,}" for count in result.stopped)
        yield f"- `validate` gave a STOP, as nothing improved, after this many lists: {counts}."
    yield ""


def _new_queries(result: RealResult) -> str:
    if not result.unseen:
        return "Every query that judges is in a learned list."
    return f"{result.unseen:,} of those that judge are of new queries, which are in no learned list."


def _table(rows: Sequence[RankingRow]) -> Iterator[str]:
    """Without columns that are empty: not every set has labels and new queries."""
    (yours,) = (row for row in rows if row.name == YOURS)
    ordered = [row for count in sorted({row.lists for row in rows}) for row in _ordered(rows, count)]
    columns = zip(COLUMNS, *(_values(row, yours) for row in ordered), strict=True)
    head, *lines = zip(*(column for column in columns if any(column[1:])), strict=True)
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)


def _ordered(rows: Sequence[RankingRow], count: int) -> list[RankingRow]:
    """Those after so many lists, ours first."""
    after = [row for row in rows if row.lists == count]
    return sorted(after, key=lambda row: row.name not in (OURS, NEWEST))


def _values(row: RankingRow, yours: RankingRow) -> tuple[str, ...]:
    gain = "" if row is yours else f"{row.auc - yours.auc:+.3f} ± {row.error:.3f}"
    unseen = "" if row.unseen is None else f"{row.unseen:.3f}"
    labels = "" if row.by_labels is None else "{:.3f} / {:.3f}".format(*row.by_labels)
    after = f"{row.lists:,}" if row.lists else ""
    auc, balanced, mrr = (f"{value:.3f}" for value in (row.auc, row.balanced, row.mrr))
    return after, row.name, auc, gain, balanced, mrr, unseen, labels


def _answering(served: str, newest: str) -> str:
    if served == newest:
        return f"{newest} is the newest, and served"
    return f"{served} is served; the newest is {newest}"
