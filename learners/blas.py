"""BLAS held to one thread, so that the bits of a product do not depend on how many processors there are."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

SET_BY_THREADPOOLCTL = "KMP_DUPLICATE_LIB_OK"


def one_blas_thread() -> AbstractContextManager[Any]:
    """While the context lasts, BLAS uses one thread, in the whole process."""
    known = SET_BY_THREADPOOLCTL in os.environ
    from threadpoolctl import threadpool_limits

    if not known:  # its import sets this for the process and its children, which is not for a library to do
        os.environ.pop(SET_BY_THREADPOOLCTL, None)
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits
