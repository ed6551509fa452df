"""Foreign input: answers of the embeddings upstream and of vector stores."""

from __future__ import annotations

from tests.fuzz.law import ForeignInput

INPUTS: tuple[ForeignInput, ...] = ()
