"""Similarity that learns from clicks: a daemon, and its learners as a library under one name.

>>> import numpy as np
>>> from tripletd import Oasis, SearchIndex
>>> items = np.eye(4, dtype=np.float32)  # four objects; who asks for the first one clicks the second
>>> learner = Oasis(4)
>>> learner.learn_many(items[:1], items[1:2], items[2:3])  # queries, clicked, skipped
StepInfo(1 triplet: 1 updated)
>>> scores, rows = SearchIndex(learner.form(), items).search(items[:1], k=2)
>>> rows.tolist()
[[0, 1]]

Every learner, form, map and search of `learners` can be imported from here (docs/learners.md), and `follow`,
`AskClient` and `WriteClient`, the clients of a running daemon (docs/quickstart.md). Each is loaded when it is
first asked for. On the command line it is `tripletd --help`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.client import AskClient as AskClient
    from daemon.client import WriteClient as WriteClient
    from daemon.client import follow as follow
    from learners import *  # noqa: F403

_CLIENTS = ("AskClient", "WriteClient", "follow")
_BUG = 70  # of sysexits, as in `daemon.exits`, which may be out of reach here


def start() -> None:
    """The console command: the one that `daemon` has, or why it cannot be found."""
    try:
        from daemon.__main__ import start as start_command
    except Exception:
        from tripletd._names import ForeignPackage, check_names

        try:
            check_names()
        except ForeignPackage as foreign:
            for line in foreign.message.splitlines():
                sys.stderr.write(f"tripletd: {line}\n")
            sys.stderr.write(f"  {foreign.remedy}\n")
            sys.exit(_BUG)
        raise
    start_command()


def __getattr__(name: str) -> Any:
    """A name of `learners` or of `daemon.client`, and `__all__` of both. ForeignPackage where a package of
    another project is in the place of one of these."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tripletd._names import check_names

    check_names()
    if name in _CLIENTS:
        import daemon.client as home
    else:
        import learners as home  # type: ignore[no-redef]
    if name == "__all__":
        return sorted((*home.__all__, *_CLIENTS))
    if name not in (*_CLIENTS, *home.__all__):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
