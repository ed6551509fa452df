"""Work in pieces: what a piece ends with is said in its place."""

from __future__ import annotations

from daemon.exits import EX_TEMPFAIL, UserError
from daemon.work_pool import Workers, done_by


def short_of_memory(piece: int) -> int:
    raise MemoryError("Unable to allocate 9 GiB" if piece else "")


def test_memory_that_runs_out_is_a_matter_of_workers() -> None:
    refused = dict(done_by(Workers(), short_of_memory, [0, 1]))
    for piece, text in enumerate(("not enough memory", "not enough memory: Unable to allocate 9 GiB")):
        error = refused[piece]
        assert isinstance(error, UserError)
        assert (error.message, error.code) == (text, EX_TEMPFAIL)
        assert "fewer --workers" in error.remedy
        assert "what is done is kept" in error.remedy
