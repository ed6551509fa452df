"""Kernels are compiled for a stated CPU level, release the GIL, and survive a damaged cache."""

from __future__ import annotations

import fcntl
import os
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learners import CPU_LEVEL, Oasis
from learners.kernels import compile as compiler
from learners.kernels import cpu
from learners.kernels.checks import DEGENERATE, PASSIVE, step_size
from learners.kernels.cpu import V3_FEATURES, best_level
from learners.kernels.delayed import step_dense
from learners.kernels.oasis import step_sparse

from .examples import triplets, turns_during


def level(first: str = "", **environment: str) -> str:
    """CPU_LEVEL of a fresh interpreter that runs `first` before."""
    path = Path(cpu.__file__)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    code = f"{first}\nimport runpy; print(runpy.run_path({str(path)!r})['CPU_LEVEL'])"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_the_level_is_fixed_not_the_hosts() -> None:
    assert best_level("x86_64", V3_FEATURES) == "x86-64-v3"
    assert best_level("x86_64", V3_FEATURES | {"avx512f"}) == "x86-64-v3"
    assert best_level("x86_64", V3_FEATURES - {"fma"}) == "generic"
    assert best_level("aarch64", frozenset()) == "generic"


@pytest.mark.skipif(CPU_LEVEL != cpu.X86_64_V3, reason="this host is of another level")
def test_machine_code_uses_no_instruction_beyond_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "CACHE_FOLDER", None)  # a run before this one would have left it there
    monkeypatch.setattr(compiler, "_cached", frozenset())
    fresh = compiler.kernel("void(float32[::1], float32[::1])")(_add_to)
    fresh(np.zeros(1, np.float32), np.zeros(1, np.float32))
    code = "".join(fresh.inspect_asm().values())  # type: ignore[attr-defined]
    assert "%ymm" in code
    assert "%zmm" not in code


def _add_to(total: Any, values: Any) -> None:
    for i in range(len(total)):
        total[i] += values[i]


@pytest.mark.parametrize("kernel", [step_sparse, step_dense])
def test_one_kernel_has_one_signature(kernel: object) -> None:
    compiler.load_all()
    assert len(kernel.signatures) == 1  # type: ignore[attr-defined]


def test_learning_releases_the_gil() -> None:
    batch, learner = triplets(0, 3000, 300, "dense"), Oasis(300)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        # on a busy machine this thread may have to wait for a processor meanwhile
        assert any(turns_during(lambda: learner.learn_many(batch)) > 100 for _ in range(3))
    finally:
        sys.setswitchinterval(switch)


def test_a_damaged_cache_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "tiny.py"
    source.write_text(
        "from learners.kernels.compile import kernel\n"
        "@kernel('float64(float64)')\n"
        "def double(x):\n    return 2 * x\n"
    )
    folder = str(tmp_path / "cache")
    monkeypatch.setattr("learners.kernels.compile.CACHE_FOLDER", folder)
    assert runpy.run_path(str(source))["double"](4.0) == 8.0
    files = list(tmp_path.rglob("*.nb?"))
    assert len(files) == 2
    monkeypatch.setattr("learners.kernels.compile._cached", compiler._cached_names(folder))
    for path in files:
        whole = path.read_bytes()
        for length in (0, 7, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            assert runpy.run_path(str(source))["double"](4.0) == 8.0


def test_what_is_cached_is_loaded_when_it_is_first_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python with an argument that fits or not, from a kernel that is compiled, by several threads."""
    source, folder = tmp_path / "tiny.py", str(tmp_path / "cache")
    source.write_text(
        "from learners.kernels.compile import kernel\n"
        "@kernel('float64(float64)')\n"
        "def double(x):\n    return 2 * x\n"
        "def fourfold(x):\n    return double(double(x))\n"
    )
    monkeypatch.setattr(compiler, "CACHE_FOLDER", folder)
    runpy.run_path(str(source), run_name="tiny")
    monkeypatch.setattr(compiler, "_cached", compiler._cached_names(folder))

    def fresh() -> dict[str, Any]:
        found = runpy.run_path(str(source), run_name="tiny")
        assert not found["double"].signatures
        return found

    assert fresh()["double"](4.0) == 8.0
    with pytest.raises(TypeError, match="No matching definition"):
        fresh()["double"](np.zeros(3))
    monkeypatch.setattr(compiler, "CACHE_FOLDER", None)
    assert compiler.kernel("float64(float64)")(fresh()["fourfold"])(4.0) == 16.0
    double, found = fresh()["double"], []
    threads = [threading.Thread(target=lambda: found.append(double(4.0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [8.0] * 8
    fresh()
    compiler.load_all()
    assert not compiler._pending


def test_without_any_cache_the_kernel_is_compiled_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learners.kernels.compile.CACHE_FOLDER", None)
    assert compiler.kernel("float64(float64)")(lambda x: 2 * x)(4.0) == 8.0


def test_the_cache_folder_changes_with_any_source(tmp_path: Path) -> None:
    folder = tmp_path / "learners" / "kernels"
    shutil.copytree(Path(cpu.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(cpu.__file__).parents[1] / "outcome.py", folder.parent)
    digests = {compiler._sources_digest(str(folder))}
    for source in [*sorted(folder.glob("*.py")), folder.parent / "outcome.py"]:
        source.write_text(source.read_text() + "# changed\n")
        digests.add(compiler._sources_digest(str(folder)))
    assert len(digests) == len(list(folder.glob("*.py"))) + 2


def test_the_users_own_level_wins_and_is_told() -> None:
    assert level(NUMBA_CPU_NAME="generic") == "generic"
    assert level(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="+sse2") == "generic,+sse2"
    assert level("import numba") == level()


SETTINGS = """
import os, warnings
import numba, scipy.sparse, scipy.linalg
environment, filters = dict(os.environ), list(warnings.filters)
from numba.core.registry import cpu_target
def settings():
    return {name: value for name, value in vars(numba.config).items() if name.isupper()}
def target():
    return cpu_target.target_context.codegen().magic_tuple()
before = settings()
if %r:
    compiled_before, theirs = numba.njit("float64(float64)")(lambda x: 2 * x), target()
    assert compiled_before(2.0) == 4.0
import learners
learners.Oasis.warm_up()
learners.SomlDa.warm_up()
learners.Oasis(3).form().scores([[1, 2, 3]], [[1, 2, 3]])
assert dict(os.environ) == environment, set(os.environ) ^ set(environment)
assert settings() == before
assert warnings.filters == filters
assert numba.njit("float64(float64)")(lambda x: 3 * x)(2.0) == 6.0
if %r:
    assert target() == theirs
import llvmlite.binding
assert target()[1] == llvmlite.binding.get_host_cpu_name()
"""


@pytest.mark.parametrize("first", [True, False], ids=["numba used before", "numba used after"])
def test_learners_change_no_setting_of_the_process(first: bool) -> None:
    """Neither the environment nor numba's settings nor what the user's own functions are compiled for."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_CPU", "KMP_"))}
    run = subprocess.run(
        [sys.executable, "-c", SETTINGS % (first, first)],
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_learners_are_imported_when_they_are_asked_for() -> None:
    code = "import learners, sys; print({'numba', 'scipy', 'numpy', 'sklearn'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


TINY = """
import warnings
from learners.kernels import compile as compiler
compiler.CACHE_FOLDER = {folder!r}
compiler._cached = compiler._cached_names(compiler.CACHE_FOLDER)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from tiny import double, triple
    assert not told, "nothing is compiled before it is called"
    assert double(2.0) == 4.0 and triple(2.0) == 6.0
print([str(one.message) for one in told if one.category.__name__ == "CompileNotice"])
"""


def test_compiling_is_told_once_and_only_where_the_cache_is_cold(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(
        "from learners.kernels.compile import kernel\n"
        "@kernel('float64(float64)')\n"
        "def double(x):\n    return 2 * x\n"
        "@kernel('float64(float64)')\n"
        "def triple(x):\n    return 3 * x\n"
    )
    folder = str(tmp_path / "cache")
    paths = os.pathsep.join([str(tmp_path), str(Path(cpu.__file__).parents[2])])
    runs = [
        subprocess.run(
            [sys.executable, "-c", TINY.format(folder=folder)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert runs[0].count("compiling kernels for this machine") == 1
    assert runs[1].strip() == "[]"


SLOW = """
import sys, time
from learners.kernels import compile as compiler
compiler.CACHE_FOLDER = {folder!r}
from tiny import double
compile = double.compile
def slowly(signature):
    print(time.monotonic(), flush=True)
    time.sleep(1)
    compile(signature)
    print(time.monotonic(), sum(double._cache_hits.values()), flush=True)
double.compile = slowly
assert double(2.0) == 4.0
"""


def test_of_two_processes_that_miss_a_kernel_one_compiles_it(tmp_path: Path) -> None:
    """The other one waits, and takes it from the cache."""
    (tmp_path / "tiny.py").write_text(
        "from learners.kernels.compile import kernel\n"
        "@kernel('float64(float64)')\n"
        "def double(x):\n    return 2 * x\n"
    )
    folder = str(tmp_path / "cache")
    Path(folder).mkdir()
    paths = os.pathsep.join([str(tmp_path), str(Path(cpu.__file__).parents[2])])
    both = [
        subprocess.Popen(
            [sys.executable, "-c", SLOW.format(folder=folder)],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    found = sorted(one.communicate()[0].split() for one in both)
    assert [one.returncode for one in both] == [0, 0]
    (_, first_ended, hits), (second_began, _, later_hits) = found
    assert float(second_began) >= float(first_ended), "one after the other"
    assert (hits, later_hits) == ("0", "1")


def test_a_batch_in_fortran_or_strided_memory_learns_the_same() -> None:
    batch = triplets(1, 40, 7, "dense")
    values = [part.kernel_rows() for part in (batch.query, batch.clicked, batch.skipped)]
    plain, strided = Oasis(7), Oasis(7)
    plain.learn_many(batch)
    for t in range(40):
        strided.learn_one(*(np.repeat(v, 2, axis=1)[t, ::2] for v in values))  # type: ignore[arg-type]
    assert plain.W.tobytes() == strided.W.tobytes()


@pytest.mark.parametrize("norm", [0.0, -0.0, -1e-30, -5.0, np.nan])
def test_a_norm_that_is_not_positive_gives_no_step(norm: float) -> None:
    """That of an indefinite kernel may fall below 0; loss / norm would then be a step away from the click."""
    assert step_size(0.5, norm, 0.1) == (DEGENERATE, 0.5, 0)
    assert step_size(2.0, norm, 0.1) == (PASSIVE, 0, 0)


@pytest.mark.parametrize("margin", [np.inf, -np.inf, np.nan, -1e39])
def test_a_margin_beyond_float32_gives_no_step_and_no_loss(margin: float) -> None:
    """Else an infinite margin would count as learned, and an infinite loss would be summed up."""
    assert step_size(margin, 1.0, 0.1) == (DEGENERATE, 0, 0)


def test_a_frozen_process_that_compiles_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock belongs to whoever opened the file, so that this process can play both."""
    monkeypatch.setattr(compiler, "CACHE_FOLDER", str(tmp_path))
    monkeypatch.setattr(compiler, "LOOKS", 2)
    with (tmp_path / "oasis.step-1.lock").open("ab") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        with compiler._alone("oasis.step-1"):
            (tmp_path / "oasis.step-1.py311.nbi").touch()
        monkeypatch.setattr(compiler, "LOOK_EVERY_S", 1e6)
        with compiler._alone("oasis.step-1"), (tmp_path / "oasis.step-1.lock").open("ab") as another:
            assert not compiler._is_locked(another), "it is held still"
