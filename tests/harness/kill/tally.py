"""What an experiment of the crash tests found: a row of the table that `make soak` prints."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Cases tried, the bad ones with what was wrong, and one worst figure in words."""

    what: str
    tried: int = 0
    bad: list[str] = field(default_factory=list)
    worst: str = ""
    seconds: float = 0.0

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Count one case; whatever fails inside makes it a bad one and the next goes on."""
        self.tried += 1
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.bad.append(f"{name}: {type(error).__name__} at {place.name}:{place.lineno}: {error}"[:2000])
        finally:
            self.seconds += time.monotonic() - began

    def check(self) -> None:
        """Raise AssertionError naming the bad cases, or that there were none at all."""
        assert self.tried, f"{self.what}: nothing was tried"
        assert not self.bad, f"{self.what}: {len(self.bad)} of {self.tried} are bad\n" + "\n".join(self.bad)
