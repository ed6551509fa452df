"""The golden files: what the wire formats are, byte for byte, in both directions."""

import json
from pathlib import Path

import numpy as np
import pytest

from streams.codec import decode_event, decode_impression, encode_event, encode_impression
from streams.event import Draft, DraftModel, Event, Impression, ObjectRef, SparseVector
from streams.poison import REASONS, Poison

FOLDER = Path(__file__).parent / "vectors"
VALID = json.loads((FOLDER / "valid.json").read_text())
POISON = json.loads((FOLDER / "poison.json").read_text())
DECODE = {"event": decode_event, "impression": decode_impression}
ENCODE = {"event": encode_event, "impression": encode_impression}


def vector(plain):
    if isinstance(plain, dict):
        return SparseVector(np.array(plain["indices"], np.int32), np.array(plain["values"], np.float32))
    return np.array(plain, np.float32)


def ref(plain):
    views = {name: vector(one) for name, one in plain["views"].items()} if "views" in plain else None
    return ObjectRef(plain.get("id"), vector(plain["x"]) if "x" in plain else None, views)


def built(case):
    fields = dict(case["value"])
    fields["query"] = ref(fields["query"])
    if case["kind"] == "event":
        return Event(**fields | {role: ref(case["value"][role]) for role in ("clicked", "skipped")})
    fields |= {"shown": tuple(map(ref, fields["shown"])), "clicked": tuple(fields["clicked"])}
    if "propensity" in fields:
        fields["propensity"] = tuple(fields["propensity"])
    if "draft" in fields:
        fields["draft"] = draft(**fields["draft"])
    return Impression(**fields)


def draft(models, teams, explored=(None, None)):
    return Draft(tuple(DraftModel(*one) for one in models), tuple(teams), *explored)


def plain_draft(one):
    models = [[model.name, model.version, model.records] for model in one.models]
    explored = {} if one.explored is None else {"explored": [one.explored, one.chance]}
    return {"models": models, "teams": list(one.teams), **explored}


def plain_vector(one):
    if isinstance(one, SparseVector):
        assert one.indices.dtype == np.int32
        assert one.values.dtype == np.float32
        return {"indices": one.indices.tolist(), "values": one.values.tolist()}
    assert one.dtype == np.float32
    return one.tolist()


def plain_ref(one):
    plain = {} if one.id is None else {"id": one.id}
    if one.x is not None:
        plain["x"] = plain_vector(one.x)
    if one.views is not None:
        plain["views"] = {name: plain_vector(vector) for name, vector in one.views.items()}
    return plain


def plain(decoded):
    """A decoded value as the golden files write it: whatever is at its default left out."""
    fields = {name: getattr(decoded, name) for name in type(decoded).__dataclass_fields__}
    for name, value in fields.items():
        if isinstance(value, ObjectRef):
            fields[name] = plain_ref(value)
        elif isinstance(value, Draft):
            fields[name] = plain_draft(value)
        elif name == "shown":
            fields[name] = [plain_ref(one) for one in value]
        elif isinstance(value, tuple):
            fields[name] = list(value)
    return {
        name: value
        for name, value in fields.items()
        if value is not None
        and (name, value) not in (("weight", 1.0), ("trained", False), ("for_arms", False), ("pair", 0))
    }


@pytest.mark.parametrize("case", VALID, ids=lambda case: case["name"])
def test_valid(case):
    data = bytes.fromhex(case["hex"])
    assert plain(DECODE[case["kind"]](data)) == case["value"]
    encoded = ENCODE[case["kind"]](built(case))
    assert (encoded == data) == case["canonical"]
    assert plain(DECODE[case["kind"]](encoded)) == case["value"]


@pytest.mark.parametrize("case", POISON, ids=lambda case: case["name"])
def test_poison(case):
    with pytest.raises(Poison) as refused:
        DECODE[case["kind"]](bytes.fromhex(case["hex"]))
    assert refused.value.reason == case["reason"]
    assert len(refused.value.detail) < 200


def test_no_value_and_too_large_a_value():
    with pytest.raises(Poison) as refused:
        decode_event(None)
    assert refused.value.reason == "null_value"
    with pytest.raises(Poison) as refused:
        decode_event(bytes(1024 * 1024 + 1))
    assert refused.value.reason == "too_large"


def test_the_specification_names_every_reason():
    text = (Path(__file__).parents[2] / "streams" / "FORMAT.md").read_text()
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []
