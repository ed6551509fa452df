"""What is confirmed is in the file for good: once, whole, whoever else writes, whenever the process dies."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from daemon.exits import EX_DATAERR, EX_UNAVAILABLE, UserError
from daemon.ratings import kept
from daemon.ratings.kept import RatingsFile, RatingsRefused, read_ratings
from daemon.ratings.study import MOST_RATERS, Rating, Study
from tests.daemon.ratings.made import rating, study

LISTS = {f"q{n}": ([f"a{n}", "b"], ["b", f"c{n}"]) for n in range(200)}
MADE = study(LISTS)
ROOMY = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / "ratings.jsonl"


def begun(path: Path, most: int = ROOMY) -> RatingsFile:
    file = RatingsFile(path, most)
    assert file.begin(MADE) == MADE
    return file


def test_a_study_and_its_ratings_are_read_as_they_were_written(path: Path) -> None:
    file = begun(path)
    said = [rating(MADE, "q1", "Anna", ["b"]), rating(MADE, "q0", "Ben \u00fc", [])]
    assert [file.add(one) for one in said] == [True, True]
    for known in (file.known(), read_ratings(path), RatingsFile(path, ROOMY).known()):
        assert known.studies == {"first": MADE}
        assert known.of("first") == said
        assert known.done("first", "ANNA") == ["q1"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_first_study_of_a_name_counts(path: Path) -> None:
    begun(path)
    other = study({"z": (["a"], ["b"])})
    assert RatingsFile(path, ROOMY).begin(other) == MADE


def test_a_rating_that_is_sent_twice_counts_once_and_another_one_is_refused(path: Path) -> None:
    file = begun(path)
    assert file.add(rating(MADE, "q0", "Anna", ["b"]))
    size = path.stat().st_size
    assert not file.add(rating(MADE, "q0", "anna", ["b"], at=9_000))
    with pytest.raises(RatingsRefused, match="the first rating counts") as refused:
        file.add(rating(MADE, "q0", "Anna", ["a0"]))
    assert refused.value.code == "rated_before"
    assert path.stat().st_size == size


def test_raters_are_bounded(path: Path) -> None:
    file = begun(path)
    for number in range(MOST_RATERS):
        assert file.add(rating(MADE, "q0", f"r{number}", []))
    with pytest.raises(RatingsRefused, match="50 people have rated"):
        file.add(rating(MADE, "q0", "one more", []))
    assert file.add(rating(MADE, "q1", "R0", [])), "who has rated goes on"


def test_a_file_that_is_full_takes_no_more(path: Path) -> None:
    file = begun(path)
    full = RatingsFile(path, path.stat().st_size + 10)
    with pytest.raises(UserError, match=r"serve\.ratings\.size allows"):
        full.add(rating(MADE, "q0", "anna", []))
    assert file.known().of() == []


def test_two_processes_see_what_the_other_has_written(path: Path) -> None:
    one, other = begun(path), RatingsFile(path, ROOMY)
    assert one.add(rating(MADE, "q0", "anna", ["b"]))
    assert not other.add(rating(MADE, "q0", "anna", ["b"]))
    assert other.add(rating(MADE, "q1", "anna", ["b"]))
    assert one.known().done("first", "anna") == ["q0", "q1"]


def test_who_writes_waits_for_another_process_that_is_writing(path: Path) -> None:
    file = begun(path)
    writer = threading.Thread(target=file.add, args=(rating(MADE, "q0", "anna", ["b"]),))
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        size = path.stat().st_size
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert path.stat().st_size == size
    writer.join()
    assert path.stat().st_size > size


def test_the_same_rating_from_many_at_once_is_written_once(path: Path) -> None:
    files = [begun(path), RatingsFile(path, ROOMY)]
    new: list[bool] = []

    def send(file: RatingsFile) -> None:
        for query in list(LISTS)[:20]:
            new.append(file.add(rating(MADE, query, "anna", ["b"])))

    threads = [threading.Thread(target=send, args=(files[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new) == 20
    assert len(read_ratings(path).of("first")) == 20


def test_a_line_that_a_crash_cut_off_gives_way_to_the_next(path: Path) -> None:
    file = begun(path)
    with path.open("ab") as torn:
        torn.write(b'{"record":"rating","study":"fir')
    assert read_ratings(path).of() == []
    assert file.add(rating(MADE, "q0", "anna", ["b"]))
    assert [one.query for one in RatingsFile(path, ROOMY).known().of()] == ["q0"]


def test_a_file_that_is_put_back_or_moved_away_is_read_again(path: Path) -> None:
    file = begun(path)
    before = path.read_bytes()
    file.add(rating(MADE, "q0", "anna", []))
    path.write_bytes(before)
    assert file.known().of() == []
    path.unlink()
    assert file.known().studies == {}
    assert file.begin(MADE) == MADE


def test_what_could_not_be_written_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, real = begun(path), os.write
    size = path.stat().st_size

    def half(descriptor: int, data: bytes) -> int:
        if os.fstat(descriptor).st_size > size:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(descriptor, bytes(data)[:50])

    with monkeypatch.context() as patched:
        patched.setattr(kept.os, "write", half)
        with pytest.raises(OSError, match="no space"):
            file.add(rating(MADE, "q0", "anna", ["b"]))
    assert path.stat().st_size == size
    assert file.known().of() == []
    assert file.add(rating(MADE, "q0", "anna", ["b"]))


def test_every_rating_is_flushed_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, flushed, real = begun(path), list[int](), os.fsync
    monkeypatch.setattr(kept.os, "fsync", lambda one: (flushed.append(os.fstat(one).st_size), real(one)))
    file.add(rating(MADE, "q0", "anna", ["b"]))
    assert flushed == [path.stat().st_size]


def test_what_was_confirmed_is_there_after_a_kill(path: Path) -> None:
    begun(path)
    for turn in range(4):
        who = f"rater {turn}"
        told = _killed(path, partial(_marked, who), after=10 + 7 * turn)
        done = RatingsFile(path, ROOMY).known().done("first", who)
        assert len(told) >= 10 + 7 * turn
        assert set(told) <= set(done)
        assert len(done) <= len(told) + 1, "the one on its way, at most"


def _marked(rater: str, number: int) -> Rating:
    return rating(MADE, f"q{number}", rater, ["b"])


def _killed(path: Path, make: Callable[[int], Rating], after: int) -> list[str]:
    """The queries that a process confirmed before it was killed amid writing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            file = RatingsFile(path, ROOMY)
            for number in range(len(LISTS)):
                file.add(make(number))
                os.write(writing, f"q{number}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    told = b""
    while told.count(b"\n") < after:
        told += os.read(reading, 4096)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 4096):
        told += more
    os.close(reading)
    return told.decode().split()


def test_something_else_is_told_with_its_line(path: Path) -> None:
    begun(path)
    with path.open("ab") as file:
        file.write(b'{"record":"rating","study":1}\n')
    for read in (RatingsFile(path, ROOMY).known, lambda: read_ratings(path)):
        with pytest.raises(UserError, match=r"ratings\.jsonl, line 2: no record of ratings") as problem:
            read()
        assert problem.value.code == EX_DATAERR


def test_a_file_that_is_not_there_says_what_begins_it(path: Path) -> None:
    with pytest.raises(UserError, match=r"there are no ratings yet") as problem:
        read_ratings(path)
    assert problem.value.code == EX_UNAVAILABLE


def test_a_record_of_this_release_is_read_by_later_ones(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(
        '{"name":"s","settings":{"systems":["a","0"],"queries":1,"seed":3,"key":"","ids":""},'
        '"systems":[{"name":"a","model":"7"},{"name":"0","model":"0"}],'
        '"queries":[{"query":"q","lists":[["x"],["y","x"]]}],"began":5,"record":"study"}\n'
        '{"study":"s","query":"q","rater":"A","at":6,"systems":[{"name":"a","model":"7"},{"name":"0","model":"0"}],'
        '"results":[{"id":"y","ranks":[null,1],"relevant":false},{"id":"x","ranks":[1,2],"relevant":true}],'
        '"token":null,"record":"rating","of a later release":1}\n'
    )
    known = read_ratings(path)
    assert isinstance(known.studies["s"], Study)
    (said,) = known.of("s")
    assert said.relevant == {"x"}
    assert [one.ranks for one in said.results] == [(None, 1), (1, 2)]
