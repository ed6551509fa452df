"""Relevance judgments from a file: TREC qrels (`qrels:path`) or labels (`labels:path`).

They are used to judge versions, never to learn. `load_judgments` reads a file, `Judgments.bind` ties it to
the rows of a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daemon.exits import UserError
from streams.text_files import read_text


class JudgmentsError(UserError):
    """A judgments address or file cannot be used; the message names file, line and remedy."""


@dataclass(frozen=True)
class Judgments:
    """What a file says: `relevant` (query id -> object ids) of qrels, `labels` (id -> label) of labels."""

    relevant: dict[str, frozenset[str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def bind(self, ids: Sequence[str]) -> BoundJudgments:
        """Tie the judgments to a catalog, `ids` in row order. Objects outside of it are no candidates."""
        row_of = {object_id: row for row, object_id in enumerate(ids)}
        by_query = {
            query: np.array(sorted(row_of[other] for other in others if other in row_of), np.int64)
            for query, others in self.relevant.items()
        }
        members: dict[str, list[int]] = {}
        for row, object_id in enumerate(ids):
            if object_id in self.labels:
                members.setdefault(self.labels[object_id], []).append(row)
        by_label = {label: np.asarray(rows, dtype=np.int64) for label, rows in members.items()}
        return BoundJudgments(row_of, by_query, self.labels, by_label)


@dataclass(frozen=True)
class BoundJudgments:
    """Judgments as catalog rows."""

    row_of: dict[str, int]
    by_query: dict[str, NDArray[np.int64]]
    labels: dict[str, str]
    by_label: dict[str, NDArray[np.int64]]

    def relevant_rows(self, query_id: str) -> NDArray[np.int64]:
        """Rows relevant to a query, ascending, the query's own row left out; empty when it is not judged."""
        rows = self.by_query.get(query_id)
        if rows is None:
            rows = self.by_label.get(self.labels.get(query_id, ""), np.zeros(0, dtype=np.int64))
        own = self.row_of.get(query_id)
        return rows if own is None else rows[rows != own]

    def catalog_queries(self) -> list[str]:
        """Ids of catalog objects that the file judges as queries; what is relevant may be nothing."""
        named = self.by_query if self.by_query else self.labels
        return [query for query in named if query in self.row_of]

    def label(self, query_id: str) -> str | None:
        """The query's label where the judgments are labels, else None (macro averages need it)."""
        return self.labels.get(query_id)


def load_judgments(address: str) -> Judgments:
    """Read `qrels:path` (`qid 0 docid rel` per line, rel > 0 = relevant) or `labels:path` (`id<TAB>label`).

    Blank lines are skipped. JudgmentsError names file, line and remedy.
    """
    kind, _, name = address.partition(":")
    if kind not in _READERS or not name:
        raise JudgmentsError(f"validate.judgments: {address!r} is not 'qrels:path' or 'labels:path'")
    try:
        every = enumerate(read_text(Path(name)).splitlines(), 1)
    except OSError as error:
        reason = error.strerror or error
        raise JudgmentsError(f"validate.judgments: cannot read {name}: {reason}; check the path") from error
    except ValueError as error:
        raise JudgmentsError(f"{name}: {error}") from error
    judgments = _READERS[kind](name, [(number, line) for number, line in every if line.strip()])
    if not judgments.relevant and not judgments.labels:
        raise JudgmentsError(
            f"{name}: no judgment in the file; give it at least one line or leave the key empty"
        )
    return judgments


NumberedLines = list[tuple[int, str]]
"""With their numbers, blank ones left out."""


def _read_qrels(name: str, lines: NumberedLines) -> Judgments:
    relevant: dict[str, set[str]] = {}
    for number, line in lines:
        fields = line.split()
        if len(fields) != 4:
            raise JudgmentsError(
                f"{name}, line {number}: {len(fields)} fields; a qrels line is 'query 0 object relevance'"
            )
        try:
            grade = int(fields[3])
        except ValueError:
            raise JudgmentsError(
                f"{name}, line {number}: relevance {fields[3]!r} is not a whole number"
            ) from None
        judged = relevant.setdefault(fields[0], set())
        if grade > 0:
            judged.add(fields[2])
    return Judgments(relevant={query: frozenset(others) for query, others in relevant.items()})


def _read_labels(name: str, lines: NumberedLines) -> Judgments:
    labels: dict[str, str] = {}
    for number, line in lines:
        object_id, tab, label = line.partition("\t")
        label = label.strip()
        if not tab or not object_id or not label:
            raise JudgmentsError(f"{name}, line {number}: not 'id<TAB>label' (one tab between id and label)")
        if labels.setdefault(object_id, label) != label:
            raise JudgmentsError(
                f"{name}, line {number}: {object_id!r} already has label {labels[object_id]!r}; "
                "keep one line per id"
            )
    return Judgments(labels=labels)


_READERS: dict[str, Callable[[str, NumberedLines], Judgments]] = {
    "qrels": _read_qrels,
    "labels": _read_labels,
}
