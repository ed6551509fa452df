"""After any sequence of putting, replacing, removing and merging, a snapshot is what a dict would be."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex, Merge, PartSize, Sizes, choose
from daemon.serve.items.snapshot import PartRows
from streams.ids import Packed
from streams.items import Display
from tests.daemon.serve.items.objects import block_of, changes, contents, dense, row_of, sparse

IDS = st.sampled_from([f"item {n}" for n in range(25)] + ["ä", "\U0001f600 x"])
TAGS = st.sampled_from(["red", "blue", "large", "new"])
DISPLAYS = st.builds(
    Display,
    title=st.none() | st.just("a title"),
    tags=st.lists(TAGS, unique=True, max_size=3).map(tuple),
)
TINY = Sizes(part=4000, small=300, piece=120)
"""Merges of several pieces within a few dozen objects."""


class Model(RuleBasedStateMachine):
    """An index beside a dict of the same objects."""

    @initialize(kind=st.sampled_from([dense, sparse]), count=st.integers(0, 12))
    def start(self, kind, count):
        self.vector, self.number = kind, 100
        self.index = ItemIndex("map", DisplayFile(), TINY)
        self.model = {f"item {n}": (kind(n), Display()) for n in range(count)}
        if count:
            rows = changes(self.model).rows
            assert rows is not None
            self.index.load([rows])
        self.held = []

    @rule(
        ids=st.lists(IDS, unique=True, max_size=6),
        removes=st.lists(IDS, unique=True, max_size=4),
        shown=DISPLAYS,
    )
    def change(self, ids, removes, shown):
        self.number += 1
        new = {one: (self.vector(self.number), shown) for one in ids}
        self.index.apply(changes(new, removes))
        for one in removes:
            self.model.pop(one, None)
        self.model |= new

    @rule(pieces=st.integers(1, 12))
    def merge(self, pieces):
        for _ in range(pieces):
            if not self.index.work():
                break

    @rule()
    def merge_to_the_end(self):
        while self.index.work():
            pass
        sizes = sorted(len(part) for part in self.index.snapshot.parts)
        assert len(sizes) <= 12, "small parts do not pile up"
        assert all(part.dead * 2 < len(part) for part in self.index.snapshot.parts)

    @rule()
    def hold_a_snapshot(self):
        snapshot = self.index.snapshot
        self.held = [*self.held[-3:], (snapshot, contents(snapshot))]

    @rule(tags=st.lists(TAGS, unique=True, min_size=1, max_size=2))
    def look_for_tags(self, tags):
        snapshot = self.index.snapshot
        found = set()
        for part, mask in zip(snapshot.parts, snapshot.tagged(tags), strict=True):
            alive = mask if part.alive is None else mask & part.alive
            found |= {part.ids[row] for row in np.flatnonzero(alive)}
        assert found == {one for one, (_, shown) in self.model.items() if set(tags) <= set(shown.tags)}

    @invariant()
    def is_the_dict(self):
        if not hasattr(self, "model"):
            return
        snapshot = self.index.snapshot
        expected = {one: row_of(block_of([vector]), 0) for one, (vector, _) in self.model.items()}
        assert contents(snapshot) == expected
        assert len(snapshot) == len(self.model)
        for one in ("item 3", "ä", "nobody"):
            place = snapshot.find(one)
            assert (place is not None) == (one in self.model)
            if place is not None:
                assert snapshot.id_at(*place) == one
                assert row_of(snapshot.parts[place[0]].vectors, place[1]) == expected[one]
            shown = self.model[one][1] if one in self.model else None
            assert snapshot.display(one) == shown

    @invariant()
    def held_snapshots_stay_as_they_were(self):
        for snapshot, before in getattr(self, "held", ()):
            assert contents(snapshot) == before


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def filled(sizes=TINY, count=40, kind=dense):
    index = ItemIndex("map", DisplayFile(), sizes)
    for n in range(count):
        index.apply(changes({f"item {n}": (kind(n), Display())}))
    return index


@pytest.mark.parametrize("kind", [dense, sparse])
def test_a_merged_part_says_where_its_rows_come_from(kind):
    index = filled(kind=kind)
    index.apply(changes({}, ["item 3", "item 17"]))
    before = {part.serial: part for part in index.snapshot.parts}
    merged = 0
    while index.work():
        for part in index.snapshot.parts:
            if part.serial in before:
                continue
            row = 0
            for serial, rows in part.merged_from:
                for one in rows:
                    assert row_of(before[serial].vectors, int(one)) == row_of(part.vectors, row)
                    row += 1
            assert row == len(part)
            before[part.serial] = part
            merged += 1
    assert merged > 0


def test_what_dies_while_it_is_merged_is_dead_in_the_merged_part():
    index = filled()
    assert index.work()
    assert index.work(), "begun, not finished"
    index.apply(changes({"item 5": (dense(77), Display())}, ["item 6"]))
    while index.work():
        pass
    found = contents(index.snapshot)
    assert found["item 5"][0] == 77
    assert "item 6" not in found
    assert len(found) == 39


def test_what_dies_in_a_part_that_lives_on_while_it_is_merged_is_dead():
    index = ItemIndex("map", DisplayFile(), TINY)
    for first in (0, 5):
        index.apply(changes({f"item {n}": (dense(n), Display()) for n in range(first, first + 5)}))
    assert index.work()
    assert index.work(), "begun, not finished"
    index.apply(changes({"item 2": (dense(77), Display())}, ["item 7"]))
    while index.work():
        pass
    assert {one: row[0] for one, row in contents(index.snapshot).items()} == {
        f"item {n}": 77 if n == 2 else n for n in range(10) if n != 7
    }
    assert index.merges > 0


def test_a_part_that_died_as_a_whole_while_it_was_merged_stays_away():
    index = ItemIndex("map", DisplayFile(), TINY)
    index.apply(changes({"a": (dense(1), Display())}))
    index.apply(changes({"b": (dense(2), Display())}))
    assert index.work()
    index.apply(changes({}, ["a"]))
    while index.work():
        pass
    assert contents(index.snapshot) == {"b": (2.0, 1.0, 2.0, 3.0)}


def test_a_held_snapshot_keeps_its_living():
    index = ItemIndex("map", DisplayFile(), TINY)
    index.apply(changes({f"item {n}": (dense(n), Display()) for n in range(4)}))
    held = []
    for n in range(4):
        held.append((index.snapshot, contents(index.snapshot)))
        index.apply(changes({}, [f"item {n}"]))
    assert [len(before) for _, before in held] == [4, 3, 2, 1]
    assert all(contents(snapshot) == before for snapshot, before in held)


def test_merged_away_parts_are_released_once_nobody_reads_them():
    index = filled()
    held = index.snapshot
    old = [weakref.ref(part.vectors.values) for part in held.parts]
    while index.work():
        pass
    gc.collect()
    assert all(one() is not None for one in old), "a reader still holds the snapshot"
    del held
    gc.collect()
    kept = {id(part.vectors.values) for part in index.snapshot.parts}
    assert {id(one()) for one in old if one() is not None} <= kept


def test_a_removal_of_what_is_not_there_is_no_new_snapshot():
    index = filled(count=3)
    before = index.snapshot
    assert not index.apply(changes({}, ["nobody"]))
    assert index.snapshot is before


def test_dead_rows_are_written_off_once_they_are_half():
    index = ItemIndex("map", DisplayFile(), Sizes(part=10_000, small=0, piece=500))
    rows = changes({f"item {n}": (dense(n), Display()) for n in range(100)}).rows
    index.load([rows])
    index.apply(changes({}, [f"item {n}" for n in range(49)]))
    assert not index.work()
    index.apply(changes({}, ["item 49"]))
    while index.work():
        pass
    (part,) = index.snapshot.parts
    assert (len(part), part.dead) == (50, 0)


def test_which_parts_are_merged():
    sizes = Sizes(part=1000, small=10, piece=1)

    def chosen(*living, dead=()):
        shares = dict(dead)
        return choose([PartSize(n, one, shares.get(n, 0.0)) for n, one in enumerate(living)], sizes)

    assert chosen() == ()
    assert chosen(5) == ()
    assert chosen(5, 5) == (0, 1), "small ones always"
    assert chosen(100, 50) == (), "each twice as large as what follows"
    assert chosen(100, 50, 50) == (1, 2, 0), "as large as the smaller together"
    assert chosen(990, 10, 9) == (2, 1), "never more than a part may have"
    assert chosen(600, 600) == ()
    assert chosen(600, 100, dead={0: 0.5}) == (0,)
    assert chosen(600, 100, dead={0: 0.4}) == ()


def test_a_merge_goes_in_pieces():
    index = filled(Sizes(part=1 << 20, small=1, piece=120), count=0)
    rows = [
        PartRows(
            Packed.of_texts([f"{p} {n}" for n in range(30)]),
            block_of([dense(n) for n in range(30)]),
            [()] * 30,
            Packed.of([b""] * 30),
        )
        for p in range(2)
    ]
    index.load(rows)
    merge = Merge(999, index.snapshot.parts, Sizes(piece=120))
    pieces = 0
    while not merge.advance():
        pieces += 1
    assert pieces > 60
    assert merge.merged is not None
    assert merge.merged.ids[:] == [*index.snapshot.parts[0].ids, *index.snapshot.parts[1].ids]
