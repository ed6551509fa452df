"""`python -m tests.soak`: crashes by the hundred, failing disks, lost power, brokers that die; one table."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, redirect_stdout
from functools import lru_cache
from pathlib import Path

from tests.harness.forked import START
from tests.harness.kafka.cluster import Cluster
from tests.harness.kill.forks import Forks
from tests.harness.kill.tally import Tally
from tests.soak.arguments import parse
from tests.soak.rows import Place, Row, rows, stream_in
from tests.soak.table import Line, line_of, text, write


def main() -> int:
    """Make every experiment that was asked for; 1 when a row is bad or was left out."""
    asked = parse()
    os.environ[START] = "real"  # its figures are of processes as users start them
    lines: list[Line] = []
    until = time.monotonic() + 60 * asked.minutes
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="tripletd-soak-") as folder:
        forks = stack.enter_context(Forks())

        @lru_cache
        def kafka() -> Cluster:
            return stack.enter_context(Cluster())

        for number, row in enumerate(rows(asked)):
            place = Place(Path(folder) / str(number), stream_in(row.stream, kafka), forks, asked)
            found = _make(row, place) if time.monotonic() < until else [_left_out(row)]
            for line in found:
                lines.append(line)
                sys.stderr.write(
                    f"{line.stream}, {line.what}: {line.tried} tried, {line.bad} bad; {line.worst}\n"
                )
            shutil.rmtree(place.folder, ignore_errors=True)
            write(lines, asked)  # a run that is cut off keeps the rows that were made
    sys.stdout.write(text(lines))
    return int(any(line.bad for line in lines))


def _make(row: Row, place: Place) -> list[Line]:
    place.folder.mkdir()
    began = time.monotonic()
    with open(place.folder / "said", "w", encoding="utf-8") as said, redirect_stdout(said):
        try:
            found = row.make(place)
        except Exception as error:
            found = [Tally(row.group, 1, [f"{type(error).__name__}: {error}"])]
    for tally in found:
        tally.seconds = tally.seconds or time.monotonic() - began
    return [line_of(row.stream, tally) for tally in found]


def _left_out(row: Row) -> Line:
    return line_of(row.stream, Tally(row.group, 0, ["not begun: --minutes was over"]))


if __name__ == "__main__":
    sys.exit(main())
