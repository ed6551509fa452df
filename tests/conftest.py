"""Before any test module imports numba, as in the daemon: the processor level that kernels are compiled for."""

import learners.kernels.cpu  # noqa: F401
