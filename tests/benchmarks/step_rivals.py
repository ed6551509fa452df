"""The rivals of the OASIS step: a C loop, NumPy, river and Vowpal Wabbit, each on the same triplets.

Every rival is a callable that applies the whole batch once and returns events per second.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from learners import SparseBlock, TripletBatch

C = 0.1
VW_OPTIONS = "-q qd -b 27 --loss_function hinge --sgd --noconstant --ignore_linear q --ignore_linear d"


def c_loop(batch: TripletBatch) -> Callable[[], float]:
    """The step as a C loop with prefetch, compiled for this host with -O3 -ffast-math."""
    source = Path(__file__).with_name("oasis_loop.c")
    library = Path(tempfile.mkdtemp(prefix="tripletd-bench-")) / "oasis_loop.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the C rival needs a C compiler: apt-get install gcc")
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).oasis_loop
    function.restype = ctypes.c_int64
    dim, count = batch.query.dim, len(batch.query)
    W = np.zeros((dim, dim), np.float32)
    arguments: list[object] = []
    for block in (batch.query, batch.clicked, batch.skipped):
        assert isinstance(block, SparseBlock)
        arguments += [ctypes.c_void_p(x.ctypes.data) for x in (block.indices, block.values, block.indptr)]

    def run() -> float:
        _identity(W)
        begin = time.perf_counter()
        function(
            ctypes.c_void_p(W.ctypes.data),
            ctypes.c_int64(dim),
            ctypes.c_int64(count),
            *arguments,
            ctypes.c_float(C),
        )
        return count / (time.perf_counter() - begin)

    return run


def numpy_loop(batch: TripletBatch, count: int = 1_500) -> Callable[[], float]:
    """The step with NumPy fancy indexing, the way a notebook would write it."""
    dim = batch.query.dim
    W = np.zeros((dim, dim), np.float32)
    rows = [[_row(block, t) for block in (batch.query, batch.clicked, batch.skipped)] for t in range(count)]

    def run() -> float:
        _identity(W)
        begin = time.perf_counter()
        for (q, qv), (c, cv), (s, sv) in rows:
            ids, inverse = np.unique(np.concatenate([c, s]), return_inverse=True)
            e = np.bincount(inverse, np.concatenate([cv, -sv]), len(ids)).astype(np.float32)
            cells = np.ix_(q, ids)
            loss = 1.0 - qv @ W[cells] @ e
            if loss > 0:
                W[cells] += min(C, loss / ((qv @ qv) * (e @ e))) * np.outer(qv, e)
        return count / (time.perf_counter() - begin)

    return run


def river_loop(batch: TripletBatch, count: int = 60) -> Callable[[], float]:
    """river's passive-aggressive classifier on the outer product q (c - s) as a dictionary."""
    from river import linear_model

    examples = []
    for t in range(count):
        (q, qv), (c, cv), (s, sv) = (_row(block, t) for block in (batch.query, batch.clicked, batch.skipped))
        e = dict(zip(c.tolist(), cv.tolist(), strict=True))
        for j, v in zip(s.tolist(), sv.tolist(), strict=True):
            e[j] = e.get(j, 0.0) - v
        examples.append(
            {(i, j): x * v for i, x in zip(q.tolist(), qv.tolist(), strict=True) for j, v in e.items()}
        )

    def run() -> float:
        model = linear_model.PAClassifier(C=C, mode=1, learn_intercept=False)
        begin = time.perf_counter()
        for x in examples:
            model.learn_one(x, True)
        return count / (time.perf_counter() - begin)

    return run


def vowpal_wabbit(batch: TripletBatch, python: str, passes: int = 2) -> Callable[[], float]:
    """Vowpal Wabbit's quadratic features on the same triplets, in its own process.

    A pass is all triplets, then all of them with clicked and skipped swapped: so every example violates and
    every update is paid for, as in ours. Taken out are its start-up, its first pass (parsing, page faults of
    its table) and its reading of the cache: the seconds of `passes` further passes, less the same without any
    feature.
    """
    folder = Path(tempfile.mkdtemp(prefix="tripletd-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = folder / "triplets.vw"
    swapped = TripletBatch(batch.query, batch.skipped, batch.clicked)
    data.write_text("".join(_vw_line(one, t) for one in (batch, swapped) for t in range(len(batch.query))))
    script = (
        "import sys, time; from vowpalwabbit import Workspace\n"
        "begin = time.perf_counter(); Workspace(sys.argv[1]).finish(); print(time.perf_counter() - begin)"
    )
    base = f"-d {data} --cache_file {folder / 'triplets.cache'} --holdout_off --quiet"
    nothing = "--noconstant --ignore q --ignore d"

    def seconds(options: str, count: int) -> float:
        command = [python, "-c", script, f"{base} --passes {count} {options}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout.split()[-1])

    def run() -> float:
        learning = seconds(VW_OPTIONS, 1 + passes) - seconds(VW_OPTIONS, 1)
        reading = seconds(nothing, 1 + passes) - seconds(nothing, 1)
        return passes * 2 * len(batch.query) / max(learning - max(reading, 0.0), 1e-9)

    return run


def _identity(W: np.ndarray) -> None:
    """Reset W in place, which also touches every page before the clock starts."""
    W.fill(0.0)
    np.fill_diagonal(W, 1.0)


def _row(block: object, t: int) -> tuple[np.ndarray, np.ndarray]:
    assert isinstance(block, SparseBlock)
    begin, end = block.indptr[t], block.indptr[t + 1]
    return block.indices[begin:end], block.values[begin:end]


def _vw_line(batch: TripletBatch, t: int) -> str:
    (q, qv), (c, cv), (s, sv) = (_row(block, t) for block in (batch.query, batch.clicked, batch.skipped))
    e = dict(zip(c.tolist(), cv.tolist(), strict=True))
    for j, v in zip(s.tolist(), sv.tolist(), strict=True):
        e[j] = e.get(j, 0.0) - v
    query = " ".join(f"{i}:{x:.6g}" for i, x in zip(q.tolist(), qv.tolist(), strict=True))
    return f"1 |q {query} |d {' '.join(f'{j}:{v:.6g}' for j, v in e.items())}\n"
