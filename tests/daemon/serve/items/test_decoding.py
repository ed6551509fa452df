"""Batches of item records: what is taken in, what is refused and why, whatever stands beside it."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.serve.items.decoding import ItemDecoder
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex, Sizes
from learners.block import DenseBlock
from learners.maps import SpaceMap, ViewConfig
from streams.event import ObjectRef, SparseVector
from streams.items import Display, ItemPut, item_record, pack_display
from streams.source import OutRecord, RecordBatch
from tests.daemon.serve.items.objects import (
    DENSE,
    MIXED,
    SPARSE,
    block_of,
    contents,
    dense,
    identity,
    put,
    remove,
    row_of,
    sparse,
)


def batch(records: Sequence[OutRecord], damaged: str | None = None) -> RecordBatch:
    n = len(records)
    return RecordBatch(
        0,
        list(range(n)),
        [0] * n,
        [one.value for one in records],
        [one.key for one in records],
        [()] * n,
        damaged,
    )


def taken(records, space=DENSE, fitted=None, shown=None):
    """(decoded, contents of an index after it)."""
    shown = shown or DisplayFile()
    decoder = ItemDecoder(space, fitted or identity(space), "t.items", shown)
    decoded = decoder.decode(batch(records))
    index = ItemIndex("map", shown)
    if decoded.changes is not None:
        index.apply(decoded.changes)
    return decoded, index.snapshot


def raw(space, vector) -> bytes:
    """A record's bytes for numbers that no encoder would write."""
    good = item_record(ItemPut(ObjectRef("bad", x=dense(1) if space is DENSE else sparse(3)))).value
    if space is DENSE:
        return good.replace(dense(1).tobytes(), np.array(vector, np.float32).tobytes())
    indices, values = vector
    good = good.replace(sparse(3).indices.tobytes(), np.array(indices, np.int32).tobytes())
    return good.replace(sparse(3).values.tobytes(), np.array(values, np.float32).tobytes())


def test_of_several_records_for_one_id_the_last_good_one_counts():
    records = [
        put("a", dense(1)),
        put("b", dense(2)),
        put("a", dense(3)),
        remove("b"),
        put("c", dense(4)),
        remove("c"),
        put("c", dense(5)),
        OutRecord(raw(DENSE, [np.nan, 1, 2, 3]), b"bad"),
        put("bad", dense(9)),
        OutRecord(raw(DENSE, [1, np.inf, 2, 3]), b"bad"),
        remove("nobody"),
    ]
    decoded, snapshot = taken(records)
    assert {one: row[0] for one, row in contents(snapshot).items()} == {"a": 3.0, "c": 5.0, "bad": 9.0}
    assert (decoded.puts, decoded.removes) == (6, 3)
    assert [(one.offset, one.reason) for one in decoded.refused] == [(7, "not_finite"), (9, "not_finite")]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (OutRecord(None, b"bad"), "null_value"),
        (OutRecord(b"\xc1", b"bad"), "not_msgpack"),
        (OutRecord(raw(DENSE, [1e19, 0, 0, 0]), b"bad"), "magnitude"),
        (put("bad", dense(1), space="other"), "wrong_space"),
        (put("bad", np.ones(3, np.float32)), "wrong_dim"),
        (put("bad", sparse(3)), "wrong_kind"),
        (item_record(ItemPut(ObjectRef("bad", views={"y": dense(1)}))), "wrong_view"),
        (item_record(ItemPut(ObjectRef("bad", views={"x": dense(1), "y": dense(1)}))), "wrong_view"),
        (OutRecord(put("bad", dense(1)).value, b"good"), "wrong_key"),
        (OutRecord(put("bad", dense(1)).value, None), "wrong_key"),
    ],
)
def test_a_bad_record_is_refused_and_hurts_no_other(record, reason):
    decoded, snapshot = taken([put("a", dense(1)), record, put("b", dense(2))])
    assert set(contents(snapshot)) == {"a", "b"}
    (letter,) = decoded.refused
    assert (letter.topic, letter.partition, letter.offset) == ("t.items", 0, 1)
    assert (letter.reason, letter.value) == (reason, record.value)


@pytest.mark.parametrize(
    ("indices", "values", "reason"),
    [
        ([0, 1, 20], [1, 1, 1], "index_out_of_range"),
        ([-1, 1, 2], [1, 1, 1], "index_out_of_range"),
        ([0, 2, 2], [1, 1, 1], "indices_not_increasing"),
        ([0, 1, 2], [1, np.nan, 1], "not_finite"),
        ([0, 1, 2], [1, 1, -1e20], "magnitude"),
    ],
)
def test_bad_numbers_of_sparse_vectors(indices, values, reason):
    others = [put(f"item {n}", sparse(n)) for n in range(7)]
    for at in (0, 3, 7):
        record = OutRecord(raw(SPARSE, (indices, values)), b"bad")
        decoded, snapshot = taken([*others[:at], record, *others[at:]], SPARSE)
        assert set(contents(snapshot)) == {f"item {n}" for n in range(7)}
        assert [(one.offset, one.reason) for one in decoded.refused] == [(at, reason)]


def test_nothing_but_bad_records_changes_nothing():
    decoded, snapshot = taken([OutRecord(raw(DENSE, [np.nan] * 4), b"bad"), OutRecord(None, b"x")])
    assert decoded.changes is None
    assert len(decoded.refused) == 2
    assert len(snapshot) == 0


def test_a_damaged_stretch_is_one_letter():
    decoder = ItemDecoder(DENSE, identity(DENSE), "t.items", DisplayFile())
    decoded = decoder.decode(batch([OutRecord(None)], "offsets 3 to 7"))
    assert [(one.reason, one.detail) for one in decoded.refused] == [("corrupt_batch", "offsets 3 to 7")]


def test_what_the_map_makes_infinite_is_refused():
    sample = np.array([[0, 0, 0, 1], [1e-30, 0, 1, 2], [2e-30, 1, 0, 3]], np.float32)
    fitted = SpaceMap({"x": ViewConfig("standardise")}, unit=False).fit({"x": DenseBlock(sample)})
    assert not np.isfinite(
        fitted.transform({"x": DenseBlock(np.array([[1e17, 0, 0, 0]], np.float32))}).values
    ).all()
    records = [put("a", np.zeros(4, np.float32)), put("big", np.array([1e17, 0, 0, 0], np.float32))]
    decoded, snapshot = taken(records, fitted=fitted)
    assert set(contents(snapshot)) == {"a"}
    assert [one.reason for one in decoded.refused] == ["magnitude"]


def test_several_views_in_any_order():
    views = {
        "words": SparseVector(np.array([4], np.int32), np.array([2], np.float32)),
        "image": np.ones(3, np.float32),
    }
    _, snapshot = taken([item_record(ItemPut(ObjectRef("a", views=views)))], MIXED)
    assert contents(snapshot)["a"] == (0, 1, 2, 7, 1.0, 1.0, 1.0, 2.0)


def test_display_data_of_the_record_wins_over_the_file_as_a_whole():
    shown = DisplayFile({one: pack_display(Display("from the file", tags=("file",))) for one in ("a", "b")})
    records = [put("a", dense(1)), put("b", dense(2), text="own", tags=("own",)), put("c", dense(3))]
    _, snapshot = taken(records, shown=shown)
    assert snapshot.display("a") == Display("from the file", tags=("file",))
    assert snapshot.display("b") == Display(text="own", tags=("own",))
    assert snapshot.display("c") == Display()
    assert snapshot.display("d") is None
    (part,) = snapshot.parts
    assert [part.ids[row] for row in np.flatnonzero(snapshot.tagged(["file"])[0])] == ["a"]
    assert [part.ids[row] for row in np.flatnonzero(snapshot.tagged(["own"])[0])] == ["b"]
    assert not snapshot.tagged(["file", "own"])[0].any()
    assert not snapshot.tagged(["\ud800"])[0].any()
    assert snapshot.tagged([])[0].all()


ids = st.sampled_from(["a", "b", "c", "d", "ä"])
operations = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "nan", "bytes", "key", "space"]), ids), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(
    operations=operations,
    cut=st.integers(1, 12),
    pieces=st.integers(0, 6),
    kind=st.sampled_from([DENSE, SPARSE]),
)
def test_any_records_in_any_batches_make_what_a_dict_would(operations, cut, pieces, kind):
    vector = dense if kind is DENSE else sparse
    index = ItemIndex("map", DisplayFile(), Sizes(part=4000, small=200, piece=100))
    decoder = ItemDecoder(kind, identity(kind), "t.items", DisplayFile())
    model, refused = {}, []
    records = []
    for number, (what, one) in enumerate(operations, 1):
        good = put(one, vector(number))
        if what == "put":
            model[one] = row_of(block_of([vector(number)]), 0)
        elif what == "remove":
            model.pop(one, None)
            good = remove(one)
        else:
            refused.append(number - 1)
        bad = {
            "nan": OutRecord(raw(kind, [np.nan] * 4 if kind is DENSE else ([0, 1, 2], [np.nan] * 3)), b"bad"),
            "bytes": OutRecord(good.value[:-1], good.key),
            "key": OutRecord(good.value, b"other"),
            "space": put(one, vector(number), space="other"),
        }
        records.append(bad.get(what, good))
    letters = []
    for at in range(0, len(records), cut):
        decoded = decoder.decode(batch(records[at : at + cut]))
        letters += [at + letter.offset for letter in decoded.refused]
        if decoded.changes is not None:
            index.apply(decoded.changes)
        for _ in range(pieces):
            index.work()
    assert contents(index.snapshot) == model
    assert letters == refused
