"""Whether threads can be started, asked before a library needs them that waits for ever where they cannot."""

from __future__ import annotations

import os
import resource
import threading


class ThreadLimit(Exception):
    """No further thread can be started; the message names the limits, `remedy` says what to do."""

    remedy = "raise it: ulimit -u, LimitNPROC= and TasksMax= of systemd, --pids-limit of a container"

    def __init__(self) -> None:
        limits = {"processes of a user (ulimit -u)": resource.RLIMIT_NPROC} if os.getuid() else {}
        limits["memory of a process (ulimit -v)"] = resource.RLIMIT_AS
        bounds = {name: resource.getrlimit(which)[0] for name, which in limits.items()}
        said = [f"{name}: {most:,}" for name, most in bounds.items() if most != resource.RLIM_INFINITY]
        said.append("pids.max of a control group")
        super().__init__(f"no further thread can be started; what may limit them is {'; '.join(said)}")


def check_threads(count: int) -> None:
    """Raise ThreadLimit where so many cannot be started, by starting them; they end at once."""
    end, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError):
        raise ThreadLimit from None
    finally:
        end.set()
        for thread in started:
            thread.join()
