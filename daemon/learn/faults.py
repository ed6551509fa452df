"""Errors of the islands, as errors a user is meant to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from checkpoints.errors import CheckpointError, Superseded, WriteFailed
from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_DATAERR, EX_TEMPFAIL, UserError
from learners.errors import LearnerError
from streams.catalog import CatalogError
from streams.errors import AddressError, StreamError


@contextmanager
def readable_faults() -> Iterator[None]:
    """Turn known errors into UserError with the exit code that fits; all else is a bug and passes through."""
    try:
        yield
    except StreamError as error:
        code = (
            EX_TEMPFAIL if error.retriable else EX_CONFIG if isinstance(error, AddressError) else EX_DATAERR
        )
        raise UserError(str(error), "", code) from error
    except CatalogError as error:
        raise UserError(str(error), "", EX_DATAERR) from error
    except CheckpointError as error:
        raise UserError(f"{error.place}: {error.problem}", error.remedy, _code(error)) from error
    except LearnerError as error:
        raise UserError(str(error), "", EX_CONFIG) from error
    except MemoryError as error:
        remedy = "a similarity of d dimensions (of all views together) takes 4 d^2 bytes: lower views' dim"
        raise UserError(f"not enough memory: {error}", remedy, EX_CONFIG) from error


def _code(error: CheckpointError) -> int:
    # A superseded learner that is started again takes the epoch back: two would fence each other in turn.
    return EX_CANTCREAT if isinstance(error, Superseded | WriteFailed) else EX_DATAERR
