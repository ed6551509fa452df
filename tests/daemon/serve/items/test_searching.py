"""Objects are found by what people see of them: any case, living ones alone, in small steps."""

from __future__ import annotations

import random

import pytest

from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.page.objects import SLICE, SLICE_BY_ROW, matching
from streams.items import Display, pack_display
from tests.daemon.serve.items.objects import changes, dense

FILE = DisplayFile(
    {
        "f1": pack_display(Display("Blue boots")),
        "o2": pack_display(Display("a cap, says the file")),
        "gone": pack_display(Display("boots of nobody")),
    }
)


@pytest.fixture
def snapshot() -> IndexSnapshot:
    index = ItemIndex("map", FILE)
    told = {
        "o1": Display("Wool Coat", "warm", "photos/secret.jpg", ("tagged",)),
        "o2": Display(text="a COAT of wool"),
        "Straße-3": Display("STRASSE und Größe"),
        "o4": Display("coat that was taken away"),
        "o5": Display("ends with bo"),
        "ots": Display("begins with ots"),
    }
    index.apply(changes({name: (dense(n), display) for n, (name, display) in enumerate(told.items())}))
    index.apply(changes({"f1": (dense(7), Display())}, ["o4"]))
    return index.snapshot


def found(snapshot: IndexSnapshot, text: str) -> set[str]:
    return {one for one in matching(snapshot, text) if one is not None}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("coat", {"o1", "o2"}),
        ("WOOL", {"o1", "o2"}),
        ("f1", {"f1"}),
        ("boots", {"f1"}),  # neither who is not in the catalog, nor two neighbours read as one
        ("größe", {"Straße-3"}),
        ("says the file", set()),  # the record's own words count
        ("photos", set()),
        ("tagged", set()),
        ("title", set()),  # the name of a field, packed beside each text
        ("", {"o1", "o2", "Straße-3", "o5", "ots", "f1"}),
    ],
)
def test_what_contains_the_text_is_found(snapshot: IndexSnapshot, text: str, ids: set[str]) -> None:
    assert found(snapshot, text) == ids


def test_the_bytes_say_the_same_as_the_texts() -> None:
    draw = random.Random(5)
    texts = {f"id{n}": "".join(draw.choices("aAbB c", k=draw.randrange(1, 9))) for n in range(3 * SLICE)}
    index = ItemIndex("map", DisplayFile())
    index.apply(changes({name: (dense(1), Display(text)) for name, text in texts.items()}))
    for _ in range(20):
        wanted = "".join(draw.choices("abc1 ", k=draw.randrange(1, 4)))
        same = {n for n, text in texts.items() if wanted in text.casefold() or wanted in n}
        assert found(index.snapshot, wanted) == same


def test_there_is_a_rest_after_every_few_objects() -> None:
    index = ItemIndex("map", DisplayFile())
    told = {f"id{n}": (dense(1), Display("title")) for n in range(2 * SLICE)}
    index.apply(changes(told))
    for text in ("title", "nowhere", "nirgends ä"):
        steps = list(matching(index.snapshot, text))
        rests = [place for place, one in enumerate(steps) if one is None]
        assert len(rests) >= 2
        assert max(b - a for a, b in zip([-1, *rests], [*rests, len(steps)], strict=True)) <= SLICE_BY_ROW + 1
