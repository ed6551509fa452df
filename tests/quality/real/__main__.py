"""Makes a set of real lists of a clone of a public repository, which has to be downloaded first.

The set is kept in .cache/quality/real, which git ignores: nothing of it may be committed. Then `python -m
tests.quality --sets NAME` measures on it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.quality.real.clones import CloneLacks
from tests.quality.real.sources import SOURCES, prepare


def main() -> int:
    """Prepare what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.real", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="make a set of a clone")
    command.add_argument("name", choices=SOURCES, help="of the set")
    clones = ", ".join(f"{source.repository} for {name}" for name, source in SOURCES.items())
    command.add_argument("clone", type=Path, help=f"folder of a git clone: {clones}")
    options = parser.parse_args()
    try:
        data = prepare(options.name, options.clone)
    except CloneLacks as error:
        sys.exit(str(error))
    print(
        f"{data.name}: {len(data.ids):,} objects, {data.cut:,} lists to learn, {len(data.judged):,} to judge"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
