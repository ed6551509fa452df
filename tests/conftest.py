"""What every test finds: fixed kernels, signals as they were, a real Kafka on demand, and no test left out in
silence.
"""

import signal
from collections.abc import Iterator

import pytest

# Before any test module brings numba in: the processor level that kernels are compiled for.
import learners.kernels.cpu  # noqa: F401
from tests.kafka.fixtures import (  # noqa: F401
    kafka,
    kafka_secured,
    kafka_three,
    pytest_collection_modifyitems,
    topic,
)
from tests.nothing_skipped import (  # noqa: F401
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """A role that a test runs in this process leaves handlers by which a later signal would end all tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
