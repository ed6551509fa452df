"""A source is read once: the binary is found again, never stale, never half, never needed to be written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import streams.catalog_cache as cache
from streams.catalog import CatalogError, load_catalog
from streams.catalog_cache import CatalogSource, derived_arrays, open_catalog
from streams.event import DenseColumn, SpaceSpec, ViewSpec
from streams.objects.catalog_file import map_catalog
from streams.objects.columns import ObjectColumns

ROWS, DIM = 3000, 4
SPACE = SpaceSpec("shop", (ViewSpec("x", "dense", DIM),))


def write_source(path: Path, seed: int = 1) -> None:
    values = np.random.default_rng(seed).normal(size=(ROWS, DIM)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIM)
    table = pa.table({"id": [f"o{row}" for row in range(ROWS)], "v": vectors})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pyarrow.parquet.write_table(table, path, **plain)  # as many bytes for other numbers
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))


@pytest.fixture(autouse=True)
def old_files_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' sources were written just now; their times alone are to count."""
    monkeypatch.setattr(cache, "RACY_SECONDS", -1e9)


@pytest.fixture
def source(tmp_path: Path) -> CatalogSource:
    write_source(tmp_path / "objects.parquet")
    return CatalogSource(tmp_path / "objects.parquet", space=SPACE)


@pytest.fixture
def makings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The binaries that were made, in order."""
    made: list[Path] = []
    make = cache._make

    def noted(source, reader, binary, *more):
        made.append(binary)
        make(source, reader, binary, *more)

    monkeypatch.setattr(cache, "_make", noted)
    return made


def opened(source: CatalogSource, folder: Path, said: list[str] | None = None, **more):
    return open_catalog(source, [folder], (said if said is not None else []).append, **more)


def binaries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def test_a_second_opening_maps_what_the_first_wrote(tmp_path, source, makings, monkeypatch) -> None:
    first = opened(source, tmp_path / "kept")
    monkeypatch.setattr(cache, "_source_digest", lambda _: pytest.fail("the source is read again"))
    second = opened(source, tmp_path / "kept")
    assert len(makings) == 1
    assert first.digest == second.digest == load_catalog(source.path, SPACE).digest
    assert second.ids == [f"o{row}" for row in range(ROWS)]
    assert second.row_of("o7") == 7
    values = second.views["x"].values
    assert not values.flags.owndata
    assert not values.flags.writeable
    assert np.array_equal(values, load_catalog(source.path, SPACE).views["x"].values)


def test_a_source_that_was_only_touched_is_not_read_again(tmp_path, source, makings) -> None:
    opened(source, tmp_path / "kept")
    os.utime(source.path)
    opened(source, tmp_path / "kept")
    assert len(makings) == 1


def test_a_changed_source_is_never_served_stale(tmp_path, source, makings) -> None:
    old = opened(source, tmp_path / "kept")
    size = source.path.stat().st_size
    write_source(source.path, seed=2)
    assert source.path.stat().st_size == size
    new = opened(source, tmp_path / "kept")
    assert new.digest == load_catalog(source.path, SPACE).digest != old.digest
    assert len(makings) == 2
    assert binaries(tmp_path / "kept") == [makings[1]]  # and the old one is gone
    assert old.views["x"].values[0, 0] != new.views["x"].values[0, 0]  # but not for those who had it mapped


def test_a_file_written_just_before_is_looked_at_again(tmp_path, source, makings, monkeypatch) -> None:
    """It may be written once more within the same tick of the clock, and look the same."""
    monkeypatch.setattr(cache, "RACY_SECONDS", 1e9)
    opened(source, tmp_path / "kept")
    seen = source.path.stat()
    data = bytearray(source.path.read_bytes())
    opened(source, tmp_path / "kept")
    assert len(makings) == 1
    data[len(data) // 3] ^= 1
    source.path.write_bytes(data)
    os.utime(source.path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    monkeypatch.setattr(cache, "_looks", lambda _: [["the same", 1, 1, 1, 1]])
    opened(source, tmp_path / "kept")
    assert len(makings) == 2


def test_other_columns_are_another_binary(tmp_path, source, makings) -> None:
    opened(source, tmp_path / "kept")
    other = CatalogSource(source.path, columns=ObjectColumns(x="v"), space=SPACE)
    opened(other, tmp_path / "kept")
    opened(source, tmp_path / "kept")
    assert len(makings) == 2


@pytest.mark.parametrize("damage", ["truncated", "empty", "bytes", "gone", "note"])
def test_a_damaged_binary_is_made_again(tmp_path, source, makings, damage) -> None:
    digest = opened(source, tmp_path / "kept").digest
    (binary,) = binaries(tmp_path / "kept")
    if damage == "truncated":
        os.truncate(binary, binary.stat().st_size // 2)
    elif damage == "empty":
        binary.write_bytes(b"")
    elif damage == "bytes":
        with binary.open("r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(b"\x00" * 50)
    elif damage == "gone":
        binary.unlink()
    else:
        (note,) = (tmp_path / "kept").glob("source-*.json")
        note.write_text("[")
    again = opened(source, tmp_path / "kept")
    assert again.digest == digest
    assert np.array_equal(again.views["x"].values, load_catalog(source.path, SPACE).views["x"].values)
    assert len(makings) == (1 if damage == "note" else 2)


def test_a_look_at_the_whole_binary_finds_what_its_time_does_not_tell(tmp_path, source, makings) -> None:
    opened(source, tmp_path / "kept")
    (binary,) = binaries(tmp_path / "kept")
    seen = binary.stat()
    with binary.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"\x00" * 50)
    os.utime(binary, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert opened(source, tmp_path / "kept", whole=True).row_of("o1") == 1
    assert len(makings) == 2
    opened(source, tmp_path / "kept", whole=True)
    assert len(makings) == 2


def test_the_same_objects_give_the_same_bytes(tmp_path, source) -> None:
    """So that two makers do no harm where a file system has no locks."""
    opened(source, tmp_path / "one")
    opened(source, tmp_path / "two")
    (one,), (two,) = binaries(tmp_path / "one"), binaries(tmp_path / "two")
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_mtime_ns == two.stat().st_mtime_ns


def test_the_binary_is_a_catalog_itself(tmp_path, source) -> None:
    digest = opened(source, tmp_path / "kept").digest
    (binary,) = binaries(tmp_path / "kept")
    assert load_catalog(binary, SPACE).digest == digest == map_catalog(binary).metadata["digest"]


def test_only_a_few_are_kept(tmp_path, source) -> None:
    for number in range(cache.KEPT + 3):
        path = tmp_path / f"{number}.parquet"
        write_source(path, seed=number)
        opened(CatalogSource(path, space=SPACE), tmp_path / "kept")
    assert len(binaries(tmp_path / "kept")) == cache.KEPT
    assert len(list((tmp_path / "kept").glob("source-*.json"))) == cache.KEPT


def test_sparse_views_and_what_people_see_are_kept(tmp_path) -> None:
    lines = [
        {"id": "a", "views": {"t": {"indices": [1, 4], "values": [1, 2]}, "d": [1, 2]}, "title": "A"},
        {"id": "b", "views": {"t": {"indices": [], "values": []}, "d": [3, 4]}, "tags": ["red"]},
        {"id": "c", "views": {"t": {"indices": [9], "values": [3]}, "d": [5, 6]}},
    ]
    path = tmp_path / "o.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    plain = load_catalog(path)
    for _ in range(2):
        kept = opened(CatalogSource(path), tmp_path / "kept")
        assert kept.digest == plain.digest
        assert kept.space == plain.space
        assert [kept.shown[row] for row in range(3)] == [plain.shown[row] for row in range(3)]
        assert kept.views["t"].indptr.tolist() == [0, 2, 2, 3]
        assert isinstance(kept.views["d"], DenseColumn)


MAKER = """
import sys, time
from pathlib import Path
import streams.catalog_cache as cache
from streams.objects.catalog_file import CatalogWriter
from streams.event import SpaceSpec, ViewSpec
source, folder, slow = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
if slow:
    add, write = CatalogWriter.add, CatalogWriter.write
    def halted(self, *given):
        (add if slow == "add" else write)(self, *given)
        print("halted", flush=True)
        time.sleep(600)
    setattr(CatalogWriter, slow, halted)
space = SpaceSpec("shop", (ViewSpec("x", "dense", 4),))
made = []
make = cache._make
cache._make = lambda *given: (made.append(1), make(*given))
found = cache.open_catalog(cache.CatalogSource(source, space=space), [folder], print)
print(found.digest, len(made), flush=True)
"""


def maker(source: CatalogSource, folder: Path, slow: str = "") -> subprocess.Popen:
    words = [sys.executable, "-c", MAKER, str(source.path), str(folder), slow]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("place", ["add", "write"])
def test_a_kill_while_it_is_made_leaves_nothing_in_the_way(tmp_path, source, place) -> None:
    process = maker(source, tmp_path / "kept", place)
    try:
        assert process.stdout.readline() == "halted\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert not binaries(tmp_path / "kept")
    found = opened(source, tmp_path / "kept")
    assert found.digest == load_catalog(source.path, SPACE).digest
    names = sorted(one.name.partition("-")[0] for one in (tmp_path / "kept").iterdir())
    assert names == sorted([binaries(tmp_path / "kept")[0].name, "lock", "source"])


def test_of_two_processes_at_once_one_makes_it_and_the_other_waits(tmp_path, source) -> None:
    both = [maker(source, tmp_path / "kept") for _ in range(2)]
    said = sorted(process.communicate(timeout=120)[0].split()[-2:] for process in both)
    digest = load_catalog(source.path, SPACE).digest
    assert [one[0] for one in said] == [digest, digest]
    assert sorted(one[1] for one in said) == ["0", "1"]


def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Root may write anywhere: the refusal is the system's own error, at the place where it comes."""
    mkdir, real = Path.mkdir, os.open

    def refuse(path: Path) -> None:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))

    def making_folder(self, *given, **more):
        refuse(self)
        return mkdir(self, *given, **more)

    def opening_file(path, *given, **more):
        refuse(Path(path).parent)
        return real(path, *given, **more)

    monkeypatch.setattr(Path, "mkdir", making_folder)
    monkeypatch.setattr(os, "open", opening_file)


def test_a_folder_that_cannot_be_written_is_told_of_and_the_next_is_taken(
    tmp_path, source, monkeypatch
) -> None:
    read_only(tmp_path, monkeypatch, tmp_path / "closed")
    said: list[str] = []
    folders = [tmp_path / "closed", tmp_path / "open"]
    digest = open_catalog(source, folders, said.append).digest
    assert said == [f"{tmp_path / 'closed'}: Permission denied: objects cannot be kept there"]
    assert len(binaries(tmp_path / "open")) == 1
    assert open_catalog(source, folders, said.append).digest == digest
    assert len(said) == 1


def test_without_any_folder_the_objects_stay_in_memory(tmp_path, source, monkeypatch) -> None:
    read_only(tmp_path, monkeypatch, tmp_path / "closed")
    said: list[str] = []
    found = opened(source, tmp_path / "closed", said)
    assert found.digest == load_catalog(source.path, SPACE).digest
    assert said[1:] == [
        "the objects stay in the memory of this process alone, and are read again at every start"
    ]


def test_a_binary_in_a_folder_that_is_read_only_by_now_is_found(tmp_path, source, monkeypatch) -> None:
    opened(source, tmp_path / "kept")
    read_only(tmp_path, monkeypatch, tmp_path / "kept")
    said: list[str] = []
    assert opened(source, tmp_path / "kept", said).row_of("o1") == 1
    assert said == []


def test_progress_is_told_with_how_many_there_are(tmp_path, source, monkeypatch) -> None:
    monkeypatch.setattr(cache, "TELL_SECONDS", 0.0)
    said: list[str] = []
    opened(source, tmp_path / "kept", said)
    assert said[:2] == ["reading objects 1,024 of 3,000", "reading objects 2,048 of 3,000"]
    assert said[-1].startswith("read 3,000 objects in ")


def test_what_is_wrong_with_the_source_is_its_own_error(tmp_path, source) -> None:
    for path, message in (
        (tmp_path / "nothing.parquet", "No such file"),
        (tmp_path / "objects.parquet", "dense with 5 in the space"),
    ):
        space = SpaceSpec("shop", (ViewSpec("x", "dense", 5),))
        with pytest.raises(CatalogError, match=message) as caught:
            opened(CatalogSource(path, space=space), tmp_path / "kept")
        assert str(path) in str(caught.value)
    assert not binaries(tmp_path / "kept")


def test_a_source_that_changes_while_it_is_read_is_read_again(tmp_path, source, makings, monkeypatch) -> None:
    make = cache._make

    def changing(source, *more):
        make(source, *more)
        if len(makings) == 1:
            write_source(source.path, seed=9)

    monkeypatch.setattr(cache, "_make", changing)
    found = opened(source, tmp_path / "kept")
    assert len(makings) == 2
    assert found.digest == load_catalog(source.path, SPACE).digest


def squares(catalog):
    """What is computed of every object here: its numbers squared."""
    return {"values": catalog.views["x"].values ** 2}


def derived(catalog, made: list[str], name: str = "squares", said: list[str] | None = None):
    def make():
        made.append(name)
        return squares(catalog)

    return derived_arrays(catalog, name, make, (said if said is not None else []).append)


def test_what_was_computed_of_all_objects_is_computed_once(tmp_path, source) -> None:
    made: list[str] = []
    first = derived(opened(source, tmp_path / "kept"), made)
    catalog = opened(source, tmp_path / "kept")
    second = derived(catalog, made)
    assert made == ["squares"]
    for found in (first, second):
        assert found["values"].tobytes() == squares(catalog)["values"].tobytes()
        assert not found["values"].flags.writeable
        assert not found["values"].flags.owndata
    derived(catalog, made, "cubes")
    assert made == ["squares", "cubes"]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_what_was_computed_and_then_damaged_is_computed_again(tmp_path, source, damage: str) -> None:
    made: list[str] = []
    catalog = opened(source, tmp_path / "kept")
    derived(catalog, made)
    (file,) = (one for one in binaries(tmp_path / "kept") if "-" in one.name)
    whole = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        changed = bytearray(whole)
        changed[-1] ^= 1
        file.write_bytes(whole[:-8] if damage == "cut" else changed)
    assert derived(catalog, made)["values"].tobytes() == squares(catalog)["values"].tobytes()
    assert made == ["squares", "squares"]
    assert file.read_bytes() == whole, "the same bytes again"


@pytest.mark.parametrize("place", [-3, 40, 0])
def test_a_look_at_every_byte_finds_what_was_computed_and_changed_since(tmp_path, source, place: int) -> None:
    made: list[str] = []
    derived(opened(source, tmp_path / "kept"), made, "squares")
    derived(opened(source, tmp_path / "kept"), made, "cubes")
    (file,) = (one for one in binaries(tmp_path / "kept") if one.stem.endswith("-squares"))
    seen, changed = file.stat(), bytearray(file.read_bytes())
    changed[place] ^= 0xFF
    with file.open("r+b") as out:
        out.write(changed)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    said: list[str] = []
    catalog = open_catalog(source, [tmp_path / "kept"], said.append, whole=True)
    assert said == [f"{file}: not as it was written; removed, and computed again when it is needed"]
    assert derived(catalog, made, "squares")["values"].tobytes() == squares(catalog)["values"].tobytes()
    derived(catalog, made, "cubes")
    assert made == ["squares", "cubes", "squares"]
    open_catalog(source, [tmp_path / "kept"], said.append, whole=True)
    assert len(said) == 1, "a whole file stays"


def test_what_was_computed_goes_with_its_objects_and_with_older_names(tmp_path, source) -> None:
    made: list[str] = []
    catalog = opened(source, tmp_path / "kept")
    for name in ("one", "two", "three"):
        derived(catalog, made, name)
        time.sleep(0.02)
    stem = catalog.binary.stem
    names = {one.name for one in binaries(tmp_path / "kept")}
    assert names == {f"{stem}.safetensors", f"{stem}-two.safetensors", f"{stem}-three.safetensors"}
    write_source(source.path, seed=2)
    new = opened(source, tmp_path / "kept")
    assert binaries(tmp_path / "kept") == [new.binary]


def test_where_nothing_can_be_kept_it_stays_in_memory(tmp_path, source, monkeypatch) -> None:
    made: list[str] = []
    derived(load_catalog(source.path, SPACE), made)
    derived(load_catalog(source.path, SPACE), made)
    assert made == ["squares", "squares"], "objects that are not kept themselves"
    catalog, said = opened(source, tmp_path / "kept"), []

    def full(path, stamp=None):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "replacing", full)
    assert derived(catalog, made, said=said)["values"].tobytes() == squares(catalog)["values"].tobytes()
    assert said == [
        f"{tmp_path / 'kept'}: No space left on device: what was computed of the objects is not kept there"
    ]
