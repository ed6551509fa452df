"""The checkpoint of a followed feed: replaced as a whole, the one before kept, one writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.feed.follow.checkpoint import KEPT, CheckpointInUse, FeedCheckpoints


def test_the_newest_is_loaded_and_few_are_kept(tmp_path: Path) -> None:
    made = FeedCheckpoints(tmp_path / "feed")
    assert made.load() == (None, [])
    for number in range(5):
        made.save({"number": number, "key": ["s", "q"]})
    made.close()
    again = FeedCheckpoints(tmp_path / "feed")
    assert again.load() == ({"number": 4, "key": ["s", "q"]}, [])
    assert len(list((tmp_path / "feed").glob("*.ckpt"))) == KEPT
    again.save({"number": 5})
    assert again.load()[0] == {"number": 5}


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_damaged_one_gives_way_to_the_one_before(tmp_path: Path, cut: int) -> None:
    made = FeedCheckpoints(tmp_path)
    made.save({"number": 1})
    made.save({"number": 2})
    newest = max(tmp_path.glob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:cut])
    said, notes = made.load()
    assert said == {"number": 1}
    assert "damaged" in notes[0]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    made = FeedCheckpoints(tmp_path)
    with pytest.raises(CheckpointInUse):
        FeedCheckpoints(tmp_path)
    made.close()
    FeedCheckpoints(tmp_path).close()
