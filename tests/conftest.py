"""What every test finds: fixed kernels, a real Kafka on demand, and no test left out in silence."""

# Before any test module brings numba in: the processor level that kernels are compiled for.
import learners.kernels.cpu  # noqa: F401
from tests.kafka.fixtures import kafka, kafka_secured, kafka_three, topic  # noqa: F401
from tests.nothing_skipped import (  # noqa: F401
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)
