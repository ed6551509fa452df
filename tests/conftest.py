"""Imported before any test module brings numba in: fixes the processor level kernels are compiled for."""

import learners.kernels.cpu  # noqa: F401
