"""`--format labels`: what becomes of every line and every object, and that one file gives one sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streams.event import Event
from streams.feed import items as reasons
from streams.feed.formats import read_sources
from streams.feed.items import Dropped, FeedError, Ignored, Item
from streams.feed.options import LABELS, ReaderOptions, RelevanceOptions

LINES = "id\tlabel\na\tred\nb\tred\tround\n\nc\tblue\t\tround\nd\t\ne\nf\tgreen\n\tred\ng\tblue\ng\tsquare\n"


def read(path: Path, triplets: int = 500, seed: int = 0, **options: object) -> list[tuple[str, Item]]:
    wanted = ReaderOptions(9, relevance=RelevanceOptions(triplets=triplets, seed=seed))
    return list(read_sources([str(path)], replace(wanted, **options), LABELS))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "labels.tsv"
    found.write_text(LINES)
    return found


def test_every_line_and_every_object_is_accounted_for(path: Path) -> None:
    told = [(place, item) for place, item in read(path) if not isinstance(item, Event)]
    assert [(place.rsplit(":")[-1], item.reason) for place, item in told] == [
        ("6", reasons.NO_LABEL),
        ("7", reasons.NO_LABEL),
        ("9", reasons.BAD_LABELS),
        ("8", reasons.NO_PARTNER),
    ]
    assert [type(item) for _, item in told] == [Dropped, Dropped, Dropped, Ignored]
    assert all(reasons.remedy(item.reason) for _, item in told if not isinstance(item, Event))


def test_triplets_are_of_objects_that_share_a_label_against_those_that_share_none(path: Path) -> None:
    labels = {
        "a": {"red"},
        "b": {"red", "round"},
        "c": {"blue", "round"},
        "f": {"green"},
        "g": {"blue", "square"},
    }
    events = [item for _, item in read(path) if isinstance(item, Event)]
    assert len({event.id for event in events}) == len(events) == 500
    for event in events:
        q, c, s = (labels[ref.id] for ref in (event.query, event.clicked, event.skipped))
        assert q & c
        assert not q & s
        assert event.query.id != event.clicked.id
    assert {event.query.id for event in events} == set("abcg")
    assert {event.skipped.id for event in events} == set("abcfg")


def test_one_seed_gives_one_sample_and_more_triplets_begin_with_it(path: Path) -> None:
    first, other = read(path), read(path, seed=1)
    assert read(path) == first
    assert read(path, triplets=700)[: len(first)] == first
    ids = [{item.id for _, item in items if isinstance(item, Event)} for items in (first, other)]
    assert not ids[0] & ids[1]


def test_objects_that_the_catalog_lacks_are_dropped_by_line_and_never_drawn(path: Path) -> None:
    items = read(path, known=frozenset("abcg"))
    dropped = [
        place.rsplit(":")[-1]
        for place, item in items
        if getattr(item, "reason", "") == reasons.UNKNOWN_OBJECT
    ]
    assert dropped == ["6", "7", "8"]
    events = [item for _, item in items if isinstance(item, Event)]
    assert len(events) == 500
    assert "f" not in {event.skipped.id for event in events}


def test_an_object_that_shares_a_label_with_every_other_is_no_query(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("hub\tred\tblue\na\tred\nb\tblue\n")
    items = read(path)
    assert [(place, item.reason) for place, item in items if isinstance(item, Ignored)] == [
        (f"{path}:1", reasons.NO_REST)
    ]
    assert {item.query.id for _, item in items if isinstance(item, Event)} == {"a", "b"}


@pytest.mark.parametrize("lines", ["a\tred\nb\tred\n", "a\tred\nb\tblue\n", "a\n", "", "\xff\n"])
def test_a_file_without_a_triplet_is_an_error_that_says_how_a_line_looks(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text(lines, encoding="latin-1")
    with pytest.raises(FeedError, match="nothing can be drawn") as caught:
        read(path)
    assert "id TAB label" in caught.value.remedy
