"""A fit that may not end: in a process of its own, with a limit of processor time."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.results.systems import DidNotFinish


def within(seconds: int, fit: Callable[[], Any]) -> tuple[Any, float]:
    """What `fit` gives, and how long a processor took. Raises DidNotFinish where that is longer than the
    limit, and RuntimeError with its message where `fit` fails.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_run, args=(theirs, seconds, fit), daemon=True)
    child.start()
    theirs.close()
    try:
        found, took, failed = ours.recv()
    except EOFError:
        raise DidNotFinish(f"did not finish in {seconds} s of a processor") from None
    finally:
        child.join()
    if failed:
        raise RuntimeError(failed)
    return found, took


def _run(answer: Connection, seconds: int, fit: Callable[[], Any]) -> None:
    began = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(began) + seconds, int(began) + seconds + 1))
    try:
        answer.send((fit(), time.process_time() - began, ""))
    except Exception as error:  # told where it is waited for
        answer.send((None, 0.0, f"{type(error).__name__}: {error}"))
    answer.close()
