"""Poison: records that can never be learned from, why, and the dead letters that keep them."""

from __future__ import annotations

from dataclasses import dataclass

from streams.source import Headers, OutRecord, RecordBatch

REASONS: dict[str, str] = {
    (NULL_VALUE := "null_value"): "the record has no value",
    (CORRUPT_BATCH := "corrupt_batch"): (
        "the log holds damaged bytes here that stay damaged when they are fetched again"
    ),
    (SUSPECT := "suspect"): "the process died twice while it had this record alone in hand",
    (TOO_LARGE := "too_large"): "the record, or a text, list, map or byte string in it, is over its limit",
    (NOT_MSGPACK := "not_msgpack"): "the bytes are not one msgpack value",
    (TRAILING_BYTES := "trailing_bytes"): "bytes follow the msgpack value",
    (TOO_DEEP := "too_deep"): "maps or lists are nested too deeply",
    (BAD_TEXT := "bad_text"): "a text is not valid UTF-8",
    (DUPLICATE_KEY := "duplicate_key"): "a map holds the same key twice",
    (UNSUPPORTED_VERSION := "unsupported_version"): "the format version is not one this release reads",
    (MISSING_FIELD := "missing_field"): "a required field is missing",
    (UNKNOWN_FIELD := "unknown_field"): "a field this format version does not have",
    (WRONG_TYPE := "wrong_type"): "a field has the wrong type",
    (OUT_OF_RANGE := "out_of_range"): "a number or the length of a text is outside its range",
    (BAD_OBJECT := "bad_object"): "an object has neither id nor features, or both x and views",
    (BAD_VECTOR := "bad_vector"): (
        "a vector's bytes have an impossible length, or indices and values differ in number"
    ),
    (NO_FEATURES := "no_features"): "an object is given by id alone and no catalog is configured",
    (UNKNOWN_OBJECT := "unknown_object"): "an object's id is not in the catalog",
    (WRONG_SPACE := "wrong_space"): "the record names another feature space",
    (WRONG_VIEW := "wrong_view"): "an object lacks a view of the space, or has one the space does not know",
    (WRONG_KIND := "wrong_kind"): "a dense vector where the view is sparse, or the reverse",
    (WRONG_DIM := "wrong_dim"): "a dense vector's length is not the view's",
    (NOT_FINITE := "not_finite"): "a vector holds NaN or an infinity",
    (INDEX_OUT_OF_RANGE := "index_out_of_range"): "a sparse index is negative or not below the view's size",
    (INDICES_NOT_INCREASING := "indices_not_increasing"): "sparse indices are not strictly increasing",
    (MAGNITUDE := "magnitude"): "a vector holds a value too large to learn from safely",
    (WRONG_KEY := "wrong_key"): "an item's record has another key than the item's id",
    (KEY_MISSING := "key_missing"): "the record names no key, and one model per key is learned",
    (IN_THE_FUTURE := "in_the_future"): (
        "the event's time lies further past its record's arrival in the log than is believed"
    ),
}
"""Every reason, by a constant of this module, and what it means: a closed list, safe as a metric label."""


class Poison(Exception):
    """A record that is refused for good: `reason` (a key of `REASONS`) and a short `detail`.

    The detail names the field and what was wrong with it; it never repeats a decoded value, so its
    length is bounded whatever the record holds.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        if reason not in REASONS:
            raise ValueError(f"unknown poison reason {reason!r}")
        super().__init__(f"{reason}: {detail or REASONS[reason]}")
        self.reason = reason
        self.detail = detail or REASONS[reason]


def refuse_unread(batch: RecordBatch) -> None:
    """Raise Poison for a batch marked as damaged or left out."""
    if batch.damaged is not None:
        raise Poison(CORRUPT_BATCH if batch.kept is None else SUSPECT, batch.damaged)


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
