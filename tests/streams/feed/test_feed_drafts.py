"""Interleaved lists on their way through feed: signature, age, and what goes along to the holdout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from streams.codec import decode_event, decode_impression, encode_impression
from streams.event import EITHER, FIRST, SECOND, Draft, DraftModel, Impression, ObjectRef
from streams.feed import items as reasons
from streams.feed.decide import Decider
from streams.feed.formats import read_sources
from streams.feed.items import Item
from streams.feed.options import FeedSettings, ListProof
from streams.feed.run import FeedRun
from streams.feed.triplets import SeenCandidates, without
from streams.partitions import is_holdout
from streams.signed_lists import SignedList, explored_chance, sign_list

from .feed_builders import OPTIONS, Kept, placed, write_lines

SECRET = b"0123456789abcdef0123456789abcdef"
MADE_MS = 1_700_000_000_000
MODELS = (DraftModel("stable", 3, 100), DraftModel("latest", 9, 900))
TEAMS = (FIRST, SECOND, EITHER, SECOND)
SHOWN = ("a", "b", "c", "d")
DRAFT = Draft(MODELS, TEAMS)
NAMES = [f"q{number}" for number in range(99)]
HELD = next(name for name in NAMES if is_holdout(name.encode(), 0.5, 0))
TRAINED = next(name for name in NAMES if not is_holdout(name.encode(), 0.5, 0))


def settings(secret: bytes | None = SECRET, earliest_ms: int = 0) -> FeedSettings:
    proof = None if secret is None else ListProof(secret, earliest_ms)
    return FeedSettings(holdout_share=0.5, random_negatives=0, proof=proof)


def made(query: str = HELD, draft: Draft = DRAFT, eligible: int = 0, nonce: bytes = b"abc") -> Impression:
    """A list as it comes back with a click on the object at the second place."""
    name = sign_list(
        SECRET, SignedList(MADE_MS, draft), ObjectRef(query), SHOWN, eligible=eligible, nonce=nonce
    )
    return Impression(name, MADE_MS + 5_000, ObjectRef(query), tuple(map(ObjectRef, SHOWN)), (1,))


class Run(FeedRun):
    """A run and what it wrote."""

    def __init__(self, of: FeedSettings, known: set[str] | None) -> None:
        self.written = Kept()
        super().__init__(Decider(of, SeenCandidates(), known), self.written)


def fed(*items: Item, of: FeedSettings | None = None, known: set[str] | None = None) -> Run:
    run = Run(of or settings(), known)
    run.run(placed(items))
    return run


def holdout(run: Run) -> list[Impression]:
    return [decode_impression(record.value) for record in run.written.holdout]


def test_a_proved_draft_goes_along_to_the_holdout() -> None:
    explored = replace(DRAFT, explored=2, chance=explored_chance(4, 10))
    run = fed(made(), made(draft=explored, eligible=10))
    assert [one.draft for one in holdout(run)] == [DRAFT, explored]
    assert run.committed.drafts == {reasons.PROVED: 2}


def test_training_learns_from_such_lists_as_from_others() -> None:
    run = fed(made(TRAINED))
    events = [decode_event(record.value) for record in run.written.training]
    assert [(one.clicked.id, one.skipped.id) for one in events] == [("b", "a"), ("b", "c"), ("b", "d")]
    assert run.committed.drafts == {reasons.PROVED: 1}


def test_a_forged_list_is_refused_and_counted() -> None:
    run = fed(replace(made(), shown=tuple(map(ObjectRef, "badc"))), made(nonce=b"xyz"))
    assert run.committed.dropped == {reasons.BAD_SIGNATURE: 1}
    assert len(holdout(run)) == 1
    assert fed(made(), of=settings(b"another secret of 32 characters.")).committed.dropped == {
        reasons.BAD_SIGNATURE: 1
    }
    assert reasons.remedy(reasons.BAD_SIGNATURE)


def test_an_expired_list_is_an_ordinary_one() -> None:
    run = fed(made(), of=settings(earliest_ms=MADE_MS + 1))
    assert [one.draft for one in holdout(run)] == [None]
    assert run.committed.drafts == {reasons.TOO_LATE: 1}
    assert fed(made(), of=settings(earliest_ms=MADE_MS)).committed.drafts == {reasons.PROVED: 1}


def test_without_a_secret_it_is_an_ordinary_one() -> None:
    run = fed(made(), of=settings(None))
    assert [one.draft for one in holdout(run)] == [None]
    assert run.committed.drafts == {reasons.NO_SECRET: 1}


def test_a_list_fed_again_counts_once() -> None:
    run = fed(made(), made(), replace(made(), clicked=(0,)))
    assert len(holdout(run)) == 1
    assert run.committed.dropped == {reasons.DUPLICATE: 2}


def test_a_draft_that_nobody_signed_is_not_believed(tmp_path: Path) -> None:
    """The wire format can hold a draft, and feed reads the wire format."""
    path = tmp_path / "lists.msgpack"
    path.write_bytes(encode_impression(replace(made(), id="i-1", draft=DRAFT)))
    read = [item for _, item in read_sources([str(path)], OPTIONS)]
    assert read[0].draft == DRAFT  # type: ignore[union-attr]
    assert [one.draft for one in holdout(fed(*read))] == [None]


def test_teams_follow_the_objects_that_are_left() -> None:
    run = fed(made(), known={HELD, "b", "d", "c"})
    assert holdout(run)[0].draft == Draft(MODELS, (SECOND, EITHER, SECOND))
    explored = replace(made(), draft=replace(DRAFT, explored=2, chance=0.1))
    assert without(explored, frozenset({0})).draft == Draft(MODELS, TEAMS[1:], 1, 0.1)
    assert without(explored, frozenset({2})).draft == Draft(MODELS, (FIRST, SECOND, SECOND))


def test_json_lines_and_ubi_bring_the_same_list(tmp_path: Path) -> None:
    one = made()
    native = write_lines(
        tmp_path / "lists.jsonl",
        [{"id": one.id, "ts": one.ts, "q": HELD, "shown": list(SHOWN), "clicked": ["b"]}],
    )
    query = {
        "query_id": one.id,
        "user_query": HELD,
        "timestamp": one.ts,
        "query_response_hit_ids": list(SHOWN),
    }
    attributes = {"object": {"object_id": "b"}, "position": {"ordinal": 2}, "team": "latest"}
    click = {"action_name": "click", "query_id": one.id, "timestamp": one.ts, "event_attributes": attributes}
    ubi = [write_lines(tmp_path / f"{name}.jsonl", [line]) for name, line in (("q", query), ("e", click))]
    for sources in ([native], ubi):
        items = [item for _, item in read_sources(sources, OPTIONS)]
        assert [held.draft for held in holdout(fed(*items))] == [DRAFT]


def test_the_account_tells_of_them() -> None:
    told = json.loads(json.dumps(fed(made(), made()).committed.to_dict()))
    assert told["drafts"] == {"proved": 1}
