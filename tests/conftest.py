"""What every test finds: fixed kernels, signals as they were, a real Kafka on demand, and no test left out in
silence.
"""

import signal

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

HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


@pytest.fixture(autouse=True)
def signals_as_they_were() -> None:
    """A role that ran in this process, for a test or a fixture before this test, has left handlers by which a
    signal would end all tests.
    """
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)
