"""A kind of queries that is held out as a whole, from the click log to the sentence in `status`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_CONFIG, EX_OK
from daemon.look.status import collect
from streams.catalog import load_catalog
from streams.codec import decode_event, decode_impression
from streams.feed.kinds import HeldOutKinds
from streams.open import open_source
from tests.daemon.test_form_by_clicks import Judged, judged

KINDS = "holdout_kinds = 1\nkind_share = 0.25\n"


@pytest.fixture
def place(tmp_path: Path) -> Judged:
    made = Judged(tmp_path, "cosine")
    made.file.write_text(made.file.read_text().replace("[feed]\n", f"[feed]\n{KINDS}"))
    return made


def values_of(place: Judged, holdout: bool) -> list[bytes]:
    address = load_config(place.file).stream.to_address()
    out: list[bytes] = []
    with closing(open_source(address.holdout if holdout else address)) as source:
        source.assign({0: 0})
        while batch := source.poll(1000, 0.0):
            out += [value for value in batch.values if value is not None]
    return out


def test_nothing_is_learned_of_it_and_versions_are_judged_on_it(
    place: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(place, 1)
    number = judged(place, 2)
    kinds = HeldOutKinds(load_catalog(place.folder / "catalog.jsonl"), 1, 0.25)
    lists = [decode_impression(value) for value in values_of(place, holdout=True)]
    held = [one for one in lists if not one.trained]
    assert not any(kinds.of(one.query) for one in lists if one.trained)
    assert {one.kind for one in held} == {None, *kinds.names}
    assert all(one.kind == kinds.of(one.query) for one in held)
    learned = [decode_event(value).query for value in values_of(place, holdout=False)]
    assert learned
    assert not [one for one in learned if kinds.of(one)]
    (entry,) = (one for one in place.ledger.entries() if one.kind == "KEEP" and one.version == number)
    queries = {one.query.id for one in held if one.kind}
    assert entry.measures["unseen_queries"] == len(queries)
    told = collect(load_config(place.file))["unseen"]
    assert told.endswith(f"on {len(queries)} queries of kinds that are never learned")
    capsys.readouterr()
    assert main(["status", "--verbose", "--config", str(place.file)]) == EX_OK
    assert "kinds" in capsys.readouterr().out
    table = place.folder / "curves.csv"
    assert main(["curves", "--csv", str(table), "--config", str(place.file)]) == EX_OK
    assert "unseen_preference" in table.read_text().splitlines()[0]


def test_without_a_catalog_there_are_no_kinds(place: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    place.file.write_text(place.file.read_text().replace('path = "catalog.jsonl"', 'path = ""'))
    clicks = place.folder / "clicks.jsonl"
    one = {"id": "1", "ts": 1, "q": "o1", "shown": ["o2", "o3"], "clicked": [1]}
    clicks.write_text(json.dumps(one))
    assert main(["feed", str(clicks), "--config", str(place.file)]) == EX_CONFIG
    assert "feed.holdout_kinds" in capsys.readouterr().err
