"""`tripletd`, and `python -m daemon`.

Signals come first: importing the command line takes a tenth of a second, and a stop in it is no failure.
"""

from __future__ import annotations

import sys

from daemon.runtime.leaving import ROLES, leave_on_signals


def start() -> None:
    """The console command."""
    if ROLES.intersection(sys.argv[1:]):
        leave_on_signals()
    from daemon.memory.cores import limit_pools

    limit_pools()  # before numpy is imported, whose BLAS makes its threads at once
    from daemon.cli import main
    from daemon.runtime.leaving import end

    end(main())


if __name__ == "__main__":
    start()
