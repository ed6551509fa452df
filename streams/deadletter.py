"""Dead letters: refused records, kept with where they were and why they were refused."""

from __future__ import annotations

from dataclasses import dataclass

from streams.source import Headers, OutRecord


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record: its place, the reason (a key of `poison.REASONS`), detail, original bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    value: bytes | None


def dead_letter_record(letter: DeadLetter) -> OutRecord:
    """The record that keeps a dead letter: original bytes, the rest as headers.

    The key is `topic/partition/offset`: a letter that is sent again after a restart has the same key.
    """
    headers = (
        ("reason", letter.reason.encode()),
        ("detail", letter.detail.encode()),
        ("topic", letter.topic.encode()),
        ("partition", str(letter.partition).encode()),
        ("offset", str(letter.offset).encode()),
    )
    key = f"{letter.topic}/{letter.partition}/{letter.offset}".encode()
    return OutRecord(letter.value, key, headers=headers)


def parse_dead_letter(value: bytes | None, headers: Headers) -> DeadLetter:
    """Read a dead letter back; raises ValueError naming a header that is missing or malformed."""
    found = dict(headers)
    try:
        texts = {name: found[name].decode() for name in ("reason", "detail", "topic", "partition", "offset")}
        partition, offset = int(texts["partition"]), int(texts["offset"])
    except KeyError as error:
        raise ValueError(f"not a dead letter: header {error.args[0]!r} is missing") from None
    except ValueError as error:
        raise ValueError(f"not a dead letter: {error}") from None
    return DeadLetter(texts["topic"], partition, offset, texts["reason"], texts["detail"], value)
