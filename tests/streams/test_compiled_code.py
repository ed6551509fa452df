"""The decoder's compiled functions: no read outside a record, no interpreter lock, any state of the cache."""

from __future__ import annotations

import fcntl
import runpy
import shutil
from pathlib import Path
from random import Random

import pytest

from streams.compiled import compile as compiler
from streams.compiled import hashing, scan
from streams.compiled import hashing as index
from streams.compiled import reading as fill
from tests.fuzz.cases import CASES
from tests.fuzz.checked import CheckedReading, load_plain
from tests.fuzz.decoder import Fuzzer, main
from tests.fuzz.generate import event, record
from tests.fuzz.pack import pack

MODULES = load_plain()
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@cases
def test_nothing_outside_a_record_is_looked_at(case):
    checked, rng = CheckedReading(case, MODULES), Random(12)
    taken = sum(checked.check(record(rng, case.space)) for _ in range(60))
    assert taken > 2


@cases
def test_nothing_past_the_end_of_an_event_cut_short_is_looked_at(case):
    checked, rng = CheckedReading(case, MODULES), Random(8)
    for _ in range(8):
        whole = min((pack(event(rng, case.space, full=0.9), rng, 0.7) for _ in range(20)), key=len)
        assert not any(checked.check(whole[:length]) for length in range(len(whole)))


def test_a_read_past_a_record_would_be_noticed():
    modules = load_plain()
    modules["scan"].binary = lambda data, at, end: (at + 2, at + 2 + int(data[at + 1]))  # whatever `end`
    whole, checked = pack(event(Random(2), CASES[1].space), Random(2)), CheckedReading(CASES[1], modules)
    with pytest.raises(IndexError, match="place"):
        any(checked.check(whole[:length]) for length in range(len(whole)))


def test_a_few_rounds_of_the_fuzzer():
    fuzzer = Fuzzer(seed=11)
    for _ in range(12):
        fuzzer.round()
    assert fuzzer.counts["records"] == 480
    assert fuzzer.counts["events"] > 50
    assert fuzzer.counts["ways seen"] > 200
    assert len([name for name in fuzzer.counts if name.startswith("poison")]) > 8


def test_one_record_can_be_tried_alone(capsys):
    assert main(["--hex", "c1"]) == 0
    assert capsys.readouterr().out.count("not_msgpack") == len(CASES)


@pytest.mark.parametrize("kernel", [scan.scan, fill.fill, index.fill_slots, hashing.hash_each])
def test_one_function_has_one_signature_and_holds_no_lock(kernel):
    compiler.load_all()
    assert len(kernel.signatures) == 1
    assert kernel.targetoptions["nogil"]


def test_a_damaged_cache_only_costs_time(tmp_path, monkeypatch):
    source = tmp_path / "tiny.py"
    source.write_text(
        "from streams.compiled.compile import kernel\n"
        "@kernel('int64(int64)')\n"
        "def double(x):\n    return 2 * x\n"
    )
    monkeypatch.setattr(compiler, "CACHE_FOLDER", str(tmp_path / "cache"))
    assert runpy.run_path(str(source))["double"](4) == 8
    files = list(tmp_path.rglob("*.nb?"))
    assert len(files) == 2
    for path in files:
        whole = path.read_bytes()
        for length in (0, 7, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            assert runpy.run_path(str(source))["double"](4) == 8


def test_without_any_cache_a_function_is_compiled_in_memory(monkeypatch):
    monkeypatch.setattr(compiler, "CACHE_FOLDER", None)
    assert compiler.kernel("int64(int64)")(lambda x: 2 * x)(4) == 8


def test_the_cache_folder_changes_with_any_source(tmp_path):
    folder = tmp_path / "streams" / "compiled"
    here = Path(compiler.__file__).parent
    shutil.copytree(here, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(here.parent / "limits.py", folder.parent)
    digests = {compiler.sources_digest(folder)}
    sources = [*sorted(folder.glob("*.py")), folder.parent / "limits.py"]
    for source in sources:
        source.write_text(source.read_text() + "# changed\n")
        digests.add(compiler.sources_digest(folder))
    assert len(digests) == len(sources) + 1


def test_a_frozen_process_that_compiles_holds_nobody_up(tmp_path, monkeypatch):
    """A lock belongs to whoever opened the file, so that this process can play both."""
    monkeypatch.setattr(compiler, "CACHE_FOLDER", str(tmp_path))
    monkeypatch.setattr(compiler, "LOOKS", 2)
    with (tmp_path / "scan.lock").open("ab") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        with compiler._alone("scan"):
            (tmp_path / "decode.scan-12.py311.nbi").touch()
        monkeypatch.setattr(compiler, "LOOK_EVERY_S", 1e6)
        with compiler._alone("scan"), (tmp_path / "scan.lock").open("ab") as another:
            assert not compiler._is_locked(another), "it is held still"
