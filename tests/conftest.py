"""What every test finds: fixed kernels, a real Kafka on demand, and no test left out in silence."""

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
