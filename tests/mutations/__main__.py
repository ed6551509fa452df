"""`python -m tests.mutations [--only TEXT] [--list] [--tree FOLDER] [--column NAME]`: do the tests notice?

A copy of the tree is made; one mutation after another is applied to it, the few tests that must notice run,
and the file is restored. A mutation is killed when one of them fails, or does not end; it survived when all
pass. What was found goes into results.json beside this file, in the column named (`now` unless told
otherwise), so that two trees can be compared. Exits with 1 when one survived or its code is not found.

The tests of each mutation run in a fork of a process that has the product and all tests loaded, in which the
changed function is swapped. What cannot be swapped is imported anew, in a fork that has the libraries alone;
a mutated kernel is compiled anew with the kernels that depend on its file, all others come from a cache. With
`--plain` nothing is compiled: kernels run as the Python they are written in, which takes a tenth of the time
and tells as much where their tests pass so; where they do not, nothing is said of a mutation.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutations import all_mutations
from tests.mutations.mutation import Mutation, NotFound, Place, find, words
from tests.mutations.swapping import COMPILED, Functions, changed_functions, loaded_functions, swap

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
LIMIT_S = 120.0
NOT_SWAPPED = -1
TIMEOUT, DIED = "timeout", "the process of the tests died"
UNSAID = (TIMEOUT, DIED)
"""Ends without the name of a test; Python that was to be compiled may be too slow."""
COPIED = ("daemon", "streams", "learners", "checkpoints", "tripletd", "tests", "deploy", "docs",
          "pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Makefile")  # fmt: skip
LIBRARIES = (
    *("numpy", "scipy.sparse", "scipy.sparse.linalg", "sklearn.preprocessing", "pytest", "hypothesis"),
    *("typer", "rich.table", "pydantic", "prometheus_client", "structlog", "msgpack", "safetensors.numpy"),
    *("xxhash", "anyio", "starlette.applications", "uvicorn", "httpx"),
)


def main() -> int:
    """Run the mutations asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("--only", default="", help="mutations whose name matches this expression")
    parser.add_argument("--list", action="store_true", help="names, places and tests; nothing is run")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="the tree that is mutated, and whose tests run"
    )
    parser.add_argument("--column", default="now", help="under which name results.json keeps what was found")
    parser.add_argument(
        "--missing", action="store_true", help="only those that the column lacks or that survived"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--scratch", type=Path, help="a folder that stays, with the machine code of the tree")
    parser.add_argument("--plain", action="store_true", help="kernels run as plain Python, not compiled")
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    known = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    chosen = [one for one in all_mutations() if re.search(arguments.only, one.name)]
    if arguments.missing:
        chosen = [
            one for one in chosen if known.get(one.name, {}).get(arguments.column, {}).get("end") != "killed"
        ]
    if arguments.list:
        return _list(chosen, tree)
    _load()
    chosen.sort(key=lambda one: (_is_compiled(one, tree), hashlib.sha256(one.name.encode()).digest()))
    survived = 0
    with _scratch(arguments.scratch) as scratch:
        copy = Path(scratch, "tree")
        shutil.rmtree(copy, ignore_errors=True)
        _copy(tree, copy)
        cache = Path(scratch, "cache")
        if not arguments.plain and not list(cache.glob("*/.base")):
            _warm(copy, cache)
        files = {word for one in chosen for word in words(one, copy) if word.startswith("tests/")}
        loaded = Loaded(copy, cache, sorted({word.split("::")[0] for word in files}), arguments.plain)
        for number, one in enumerate(chosen):
            found = _run(one, copy, cache, loaded)
            survived += found["end"] != "killed"
            known = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
            if found["end"] != "not plain":
                known.setdefault(one.name, {})[arguments.column] = found
                arguments.results.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
            sys.stdout.write(
                f"{number + 1:3d}/{len(chosen)} {found['end']:9s} {one.name:44s} {found['by']}\n"
            )
            sys.stdout.flush()
        loaded.close()
    sys.stdout.write(f"{len(chosen) - survived} of {len(chosen)} killed\n")
    return int(survived > 0)


@contextmanager
def _scratch(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
            yield Path(folder)


def _list(chosen: Sequence[Mutation], tree: Path) -> int:
    missing = 0
    for one in chosen:
        try:
            place = find(one, tree)
            where = str(place.path.relative_to(tree))
            compile(place.after, where, "exec")
            words(one, tree)
        except (NotFound, SyntaxError) as problem:
            where, missing = f"NOT FOUND {problem}", missing + 1
        sys.stdout.write(f"{one.name:44s} {where}\n{'':44s} {one.tests}\n")
    sys.stdout.write(f"{len(chosen)} mutations, {missing} not found\n")
    return int(missing > 0)


def _is_compiled(one: Mutation, tree: Path) -> bool:
    """Whether it costs a compilation: those come last, the others in an order that is a fair sample."""
    try:
        return find(one, tree).path.parent.name in COMPILED
    except NotFound:
        return False


def _load() -> None:
    """Import what the forks would otherwise each import."""
    import importlib

    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.stderr.write(f"{name} is not here\n")


def _copy(tree: Path, copy: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in COPIED:
        source = tree / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignored)
        elif source.exists():
            copy.mkdir(exist_ok=True)
            shutil.copy2(source, copy / name)


def _run(one: Mutation, copy: Path, cache: Path, loaded: Loaded) -> dict[str, Any]:
    """Apply, run, restore; what became of it."""
    began = time.monotonic()
    try:
        place = find(one, copy)
    except NotFound as problem:
        return {"end": "not found", "by": str(problem), "seconds": 0}
    try:
        place.path.write_text(place.after, encoding="utf-8")
        compile(place.after, str(place.path), "exec")
        tests = words(one, copy)
        if loaded.plain:
            left_out = loaded.left_out(tests, place)
            if left_out is None:
                return {"end": "not plain", "by": "", "seconds": 0}
            tests += left_out
        end, by = loaded.test(tests, place.path, place.before, place.after)
        if end == "not swapped" and not (loaded.plain and place.path.parent.name in COMPILED):
            _keep_machine_code(place, cache, one.compiled)
            end, by = _forked(partial(_import_and_test, copy, cache, tests))
        if loaded.plain and (end != "killed" or by in UNSAID):
            end = "not plain"
    finally:
        place.path.write_text(place.before, encoding="utf-8")
        for stale in place.path.parent.glob(f"__pycache__/{place.path.stem}.*.pyc"):
            stale.unlink()
    return {"end": end, "by": by, "seconds": round(time.monotonic() - began, 1)}


# -- machine code: a cache folder is named by a digest of its sources --------------------------------------


def _keep_machine_code(place: Place, cache: Path, compiled: Sequence[str]) -> None:
    """Give the mutated sources the machine code of all kernels that the mutated file has no part in, or of
    all but those `compiled`."""
    sources = place.path.parent
    if sources.name not in ("kernels", "compiled"):
        return
    kind = "kernels" if sources.name == "kernels" else "decoder"
    base, own = next(cache.glob(f"{kind}-*/.base")).parent, cache / f"{kind}-{_digest(sources)}"
    shutil.rmtree(own, ignore_errors=True)
    stale = _dependents(place.path)
    for path in base.rglob("*.nb?"):
        module, function = path.name.split("-")[0].split(".")
        if function not in compiled if compiled else module not in stale:
            target = own / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)


def _digest(kernels: Path) -> str:
    digest = hashlib.sha256()
    more = kernels.parent / ("outcome.py" if kernels.name == "kernels" else "wire.py")
    for path in [*sorted(kernels.glob("*.py")), more]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _dependents(path: Path) -> set[str]:
    """Modules of the folder that import the file, themselves or through others; and the file itself."""
    package = f"{path.parent.parent.name}.{path.parent.name}"
    imports = {
        other.stem: set(
            re.findall(rf"from {re.escape(package)}\.(\w+) import", other.read_text(encoding="utf-8"))
        )
        for other in path.parent.glob("*.py")
    }
    found = {path.stem}
    while more := {name for name, used in imports.items() if used & found} - found:
        found |= more
    return found


def _warm(copy: Path, cache: Path) -> None:
    """Compile everything of the unchanged tree into the cache, once."""
    code = (
        "import pkgutil, importlib, learners.kernels, streams.compiled\n"
        "for package in (learners.kernels, streams.compiled):\n"
        "    for one in pkgutil.iter_modules(package.__path__):\n"
        "        importlib.import_module(f'{package.__name__}.{one.name}')\n"
        "import json, learners.kernels.compile as a, streams.compiled.compile as b\n"
        "print(json.dumps([a.CACHE_FOLDER, b.CACHE_FOLDER]))\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=copy, env=_environment(copy, cache), check=True, capture_output=True)
    used = json.loads(done.stdout)
    for path in cache.iterdir():
        if str(path) in used:
            (path / ".base").touch()
        else:
            shutil.rmtree(path)


# -- the tests of one mutation ------------------------------------------------------------------------------


def _environment(copy: Path, cache: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(copy),
        "NUMBA_CACHE_DIR": str(cache),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class _First:
    """Notes the tests that failed, one to a line: the first, unless pytest is told to go on."""

    def __init__(self) -> None:
        self.failed = ""
        self.passed = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed += f"\n{report.nodeid}" if self.failed else str(report.nodeid)
        self.passed += report.passed and report.when == "call"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = f"collecting {report.nodeid}"


class Loaded:
    """A process with the unchanged product and all tests loaded; its forks swap functions and run tests."""

    def __init__(self, copy: Path, cache: Path, words: Sequence[str], plain: bool = False) -> None:
        self.plain, self._known = plain, dict[str, list[str] | None]()
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._orders), os.close(self._answers)
            _settle_in(copy, cache, plain)
            silent = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(silent, number)
            _pytest(["--collect-only", "-q", *words], copy)
            functions = loaded_functions()
            gc.freeze()  # forks neither look through what is loaded nor copy it
            with (
                os.fdopen(orders, encoding="utf-8") as asked,
                os.fdopen(answers, "w", encoding="utf-8") as told,
            ):
                for line in asked:
                    found = _forked(partial(_swap_and_test, copy, functions, plain, *json.loads(line)))
                    print(json.dumps(found), file=told, flush=True)
            os._exit(0)
        os.close(orders), os.close(answers)
        self._asked = os.fdopen(self._orders, "w", encoding="utf-8")
        self._told = os.fdopen(self._answers, encoding="utf-8")

    def test(self, words: list[str], path: Path, before: str, after: str) -> tuple[str, str]:
        """What became of the tests."""
        print(json.dumps([words, str(path), before, after]), file=self._asked, flush=True)
        end, by = json.loads(self._told.readline())
        return end, by

    def left_out(self, words: list[str], place: Place) -> list[str] | None:
        """pytest's words by which the tests are left out that fail where nothing is mutated; None where that
        is not known."""
        key = json.dumps(words)
        if key not in self._known:
            _, by = self.test([*words, "--maxfail=0"], place.path, place.before, place.before)
            failed = [word for name in by.split("\n") if name for word in ("--deselect", name)]
            self._known[key] = None if by in UNSAID else failed
        return self._known[key]

    def close(self) -> None:
        """End the process."""
        self._asked.close()
        os.waitpid(self._pid, 0)


def _swap_and_test(
    copy: Path, functions: Functions, plain: bool, words: list[str], path: str, before: str, after: str
) -> dict[str, Any]:
    changed = changed_functions(Path(path), before, after, plain)
    if changed is None or not swap(Path(path), changed, functions):
        return {"failed": "", "passed": 0, "exit": NOT_SWAPPED}
    return _pytest(words, copy)


def _import_and_test(copy: Path, cache: Path, words: list[str]) -> dict[str, Any]:
    _settle_in(copy, cache)
    return _pytest(words, copy)


def _settle_in(copy: Path, cache: Path, plain: bool = False) -> None:
    """Make this process one that finds the product and the tests of the copy; plain: and compiles nothing."""
    import hypothesis
    import numba

    os.environ.update(_environment(copy, cache))
    os.chdir(copy)
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
    numba.config.CACHE_DIR = str(cache)
    if plain:
        numba.config.DISABLE_JIT = True
        import learners.kernels.intrinsics

        learners.kernels.intrinsics.prefetch = lambda *place: None
    # The first counterexample is enough, and the same ones are tried in every tree.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutations", phases=phases, derandomize=True, database=None)
    hypothesis.settings.load_profile("mutations")


def _pytest(words: Sequence[str], copy: Path) -> dict[str, Any]:
    import pytest

    first = _First()
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--rootdir", str(copy)]
    limit = f"--timeout={LIMIT_S:.0f}"
    code = pytest.main([*options, *words, limit], plugins=[first])
    return {"failed": first.failed, "passed": first.passed, "exit": int(code)}


def _forked(work: Callable[[], dict[str, Any]]) -> tuple[str, str]:
    """Run tests in a fork: ("killed", the test that failed), ("survived", ""), ("no tests", why) or
    ("not swapped", "")."""
    answer, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        os.setpgid(0, 0)
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        with os.fdopen(tell, "w", encoding="utf-8") as out:
            out.write(json.dumps(work()))
        os._exit(0)
    os.close(tell)
    deadline = time.monotonic() + LIMIT_S
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(answer)
            return "killed", TIMEOUT
        time.sleep(0.02)
    with open(answer, encoding="utf-8") as said:
        text = said.read()
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a failed test left running
    if not text:
        return "killed", DIED
    found = json.loads(text)
    if found["failed"]:
        return "killed", found["failed"]
    if found["exit"] == NOT_SWAPPED:
        return "not swapped", ""
    return ("survived", "") if found["passed"] else ("no tests", f"exit {found['exit']}")


if __name__ == "__main__":
    sys.exit(main())
