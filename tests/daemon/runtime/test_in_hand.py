"""What a death says of the records in hand: a pure function, and a note that outlasts the process."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.exits import UserError
from daemon.runtime.in_hand import DECODE, STEP, InHand, Known, last_words
from streams.source import RecordBatch

BATCH, RECORD = (0, 10, 20), (0, 13, 14)


def batch(first: int, stop: int, partition: int = 0) -> RecordBatch:
    offsets = list(range(first, stop))
    values = [b"%d" % offset for offset in offsets]
    none = [None] * len(offsets)
    return RecordBatch(partition, offsets, offsets, values, none, [()] * len(offsets))


def pieces(known: Known, of: RecordBatch) -> list[tuple[list[int], bool, bool]]:
    return [(one.offsets, alone, one.kept is not None) for one, alone in known.pieces(of)]


def test_after_a_death_with_words_the_batch_is_taken_one_at_a_time() -> None:
    known = Known().after(((0, 3, 5),), with_words=True)
    assert pieces(known, batch(1, 8)) == [
        ([1, 2], False, False),
        ([3], True, False),
        ([4], True, False),
        ([5, 6, 7], False, False),
    ]
    for other in (batch(5, 8), batch(3, 5, partition=1)):
        assert pieces(known, other) == [(other.offsets, False, False)]


def test_a_record_that_was_alone_at_two_such_deaths_is_left_out() -> None:
    known = Known().after((BATCH,), with_words=True)
    for deaths in (1, 2):
        assert not known.suspects
        known = known.after((RECORD,), with_words=True)
        assert known.deaths == {(0, 13): deaths}
    assert known.suspects == {(0, 13)}
    (left,) = [one for one, _ in known.pieces(batch(10, 20)) if one.kept is not None]
    assert (left.offsets, left.values, left.kept) == ([13], [None], b"13")
    assert "died twice" in str(left.damaged)


def test_two_batches_in_hand_accuse_no_record() -> None:
    known = Known()
    for _ in range(9):
        known = known.after((RECORD, (0, 14, 15)), with_words=True)
    assert not known.suspects


def test_deaths_without_a_word_never_leave_out_a_record() -> None:
    known = Known().after((BATCH,), with_words=False)
    assert not known.careful
    for _ in range(9):
        known = known.after((RECORD,), with_words=False)
    assert known.careful == (RECORD,)
    assert not known.deaths
    elsewhere = Known().after((BATCH,), with_words=False).after(((0, 20, 30),), with_words=False)
    assert not elsewhere.careful


def test_what_was_passed_is_forgotten() -> None:
    known = Known().after((RECORD,), True).after((RECORD,), True)
    assert known.from_positions({0: 13}) == known
    assert known.from_positions({0: 14}) == Known()


def test_what_is_taken_alike_ends_where_a_record_is_taken_alone() -> None:
    known = Known((), ((7, 100, 140),), {(7, 120): 2, (7, 110): 1})
    assert known.stretch(7, 20) == (100, False, False)
    assert known.stretch(7, 110) == (111, True, False)
    assert known.stretch(7, 120) == (121, True, True)
    assert known.stretch(7, 140)[1:] == known.stretch(6, 120)[1:] == (False, False)


def test_what_a_durable_position_is_past_is_forgotten_for_good(tmp_path: Path) -> None:
    role(tmp_path)
    died_with(tmp_path, RECORD, (5, 1, 2), words=b"x")
    one = role(tmp_path)
    one.passed(lambda: {0: 13})
    assert one.known == role(tmp_path).known == Known(careful=(RECORD, (5, 1, 2)))
    one.passed(lambda: {0: 14})
    assert one.known == role(tmp_path).known == Known(careful=((5, 1, 2),)), "of it nothing is known yet"


def role(folder: Path, positions: dict[int, int] | None = None, topic: str = "t") -> InHand:
    one = InHand(folder, "learn")
    one.open(topic, positions or {})
    return one


def died_with(folder: Path, *held: tuple[int, int, int], words: bytes = b"") -> None:
    noted = b"".join(struct.pack("<qqq", *one) for one in (*held, (0, 0, 0))[:2])
    (folder / "learn.note").write_bytes(noted + (folder / "learn.note").read_bytes()[len(noted) :])
    (folder / "learn.words").write_bytes(words)


def test_a_batch_is_noted_while_it_is_held_and_a_bug_in_it_is_a_death_with_words(tmp_path: Path) -> None:
    one = role(tmp_path)
    with one.hold(STEP, batch(10, 20)):
        assert struct.unpack("<6q", (tmp_path / "learn.note").read_bytes()[:48]) == (0, 0, 0, *BATCH)
    with pytest.raises(UserError), one.hold(STEP, batch(10, 20)):
        raise UserError("not a bug")
    assert not any((tmp_path / "learn.note").read_bytes()[:48])
    with pytest.raises(ZeroDivisionError), one.hold(DECODE, batch(10, 20)):
        raise ZeroDivisionError
    one.close()
    assert role(tmp_path).known == Known(careful=(BATCH,))
    assert role(tmp_path).known == Known(careful=(BATCH,)), "one death counts once"


def test_memory_that_ran_out_over_a_record_is_a_death_with_words(tmp_path: Path) -> None:
    one = role(tmp_path)
    with pytest.raises(UserError, match="from offset 13 on"), one.hold(STEP, batch(13, 14)):
        raise MemoryError
    assert role(tmp_path).known.deaths == {(0, 13): 1}


def test_a_death_counts_once_wherever_the_next_start_ends(tmp_path: Path) -> None:
    role(tmp_path)
    died_with(tmp_path, RECORD, words=b"x")
    before = {path: path.read_bytes() for path in tmp_path.glob("learn.[nw]*")}
    assert role(tmp_path).known.deaths == {(0, 13): 1}
    for path, content in before.items():
        path.write_bytes(content)  # as it is where the start was killed once that is known
    assert role(tmp_path).known.deaths == {(0, 13): 1}
    died_with(tmp_path, RECORD, words=b"x")
    assert role(tmp_path).known.suspects == {(0, 13)}


def test_a_death_that_cannot_be_kept_on_a_full_disk_is_not_forgotten(tmp_path: Path) -> None:
    role(tmp_path)
    died_with(tmp_path, RECORD, words=b"x")
    (tmp_path / "learn.known.tmp").mkdir()
    for _ in range(2):
        assert role(tmp_path).known.deaths == {(0, 13): 1}, "what is known holds for this process"
    (tmp_path / "learn.known.tmp").rmdir()
    for _ in range(2):
        assert role(tmp_path).known.deaths == {(0, 13): 1}


def test_the_watchdog_leaves_words_and_what_was_held_by_nobody_says_nothing(tmp_path: Path) -> None:
    one = role(tmp_path)
    with one.hold(STEP, batch(13, 14)):
        last_words("stuck")
        noted = (tmp_path / "learn.note").read_bytes()
    (tmp_path / "learn.note").write_bytes(noted)
    one.close()
    assert role(tmp_path).known.deaths == {(0, 13): 1}
    died_with(tmp_path, words=b"Segmentation fault")
    assert role(tmp_path).known.deaths == {(0, 13): 1}


HANG = """
import sys
from pathlib import Path
from daemon.runtime.in_hand import DECODE, InHand
from streams.source import RecordBatch

one = InHand(Path(sys.argv[1]), "learn", alarm_s=0.1)
one.open("t", {})
with one.hold(DECODE, RecordBatch(0, [13], [0], [b"x"], [None], [()]), alone=True):
    10 ** (10**8)
"""


def test_a_call_that_holds_the_interpreter_over_a_record_alone_ends_with_words(tmp_path: Path) -> None:
    """No thread of Python runs meanwhile: the alarm is of C."""
    assert subprocess.run([sys.executable, "-c", HANG, str(tmp_path)], check=False).returncode == 1
    assert role(tmp_path).known.deaths == {(0, 13): 1}


FAULT = """
import faulthandler, sys
from pathlib import Path
from daemon.runtime.in_hand import STEP, InHand
from streams.source import RecordBatch

one = InHand(Path(sys.argv[1]), "learn")
one.open("t", {})
with one.hold(STEP, RecordBatch(0, [13], [0], [b"x"], [None], [()])):
    if len(sys.argv) > 2:
        one.close()
    faulthandler._sigsegv()
"""


@pytest.mark.parametrize("options", [[], ["-X", "faulthandler"]])
def test_a_fault_leaves_words_also_where_python_was_to_print_them(tmp_path: Path, options: list[str]) -> None:
    def died(*more: str) -> bytes:
        command = [sys.executable, *options, "-c", FAULT, str(tmp_path), *more]
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE)
        assert done.returncode == -signal.SIGSEGV
        return done.stderr

    assert died() == b""
    assert role(tmp_path).known.deaths == {(0, 13): 1}
    assert (b"Segmentation fault" in died("close")) == bool(options)
    assert role(tmp_path).known.deaths == {(0, 13): 1}, "an orderly end"


def test_another_topic_and_a_damaged_file_say_nothing(tmp_path: Path) -> None:
    role(tmp_path)
    died_with(tmp_path, RECORD, words=b"x")
    assert role(tmp_path).known.deaths
    died_with(tmp_path, RECORD, words=b"x")
    assert role(tmp_path, topic="other").known == Known(), "nor does what the other topic's process had"
    died_with(tmp_path, RECORD, words=b"x")
    assert role(tmp_path, topic="other").known.deaths
    (tmp_path / "learn.known.json").write_text("{")
    (tmp_path / "learn.note").write_bytes(b"short")
    assert role(tmp_path).known == Known()


def test_a_note_without_words_accuses_nobody_however_often(tmp_path: Path) -> None:
    """As SIGKILL leaves it."""
    role(tmp_path)
    for _ in range(4):
        died_with(tmp_path, RECORD)
        assert not role(tmp_path).known.deaths


def test_without_a_folder_nothing_is_noted(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for one in (InHand(), InHand(blocked / "folder", "learn")):
        one.open("t", {})
        with one.hold(STEP, batch(1, 2), alone=True):
            assert one.known.pieces(batch(1, 2)) == [(batch(1, 2), False)]
        one.close()
    assert os.listdir(tmp_path) == ["file"]
