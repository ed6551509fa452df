"""What every test finds: fixed kernels, signals as they were, a real Kafka on demand, and no test left out in
silence.
"""

import atexit
import os
import shutil
import signal
import tempfile

import pytest
import structlog
from hypothesis import settings

from daemon.runtime.logs import set_level

pytest_plugins = (
    "tests.harness.garbage",
    "tests.harness.kafka.fixtures",
    "tests.harness.kill.fixtures",
    "tests.harness.nothing_skipped",
    "tests.harness.postgres",
    "tests.harness.quick",
    "tests.harness.s3_fixtures",
    "tests.harness.sharing",
    "tests.harness.timings",
)

# A busy machine makes no case wrong. Where nothing may be skipped the cases are the same in every run.
settings.register_profile("tripletd", deadline=None, derandomize="TRIPLETD_NOTHING_SKIPPED" in os.environ)
settings.load_profile("tripletd")

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tripletd-tests-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


@pytest.fixture(autouse=True)
def signals_as_they_were() -> None:
    """A role that ran in this process, for a test or a fixture before this test, has left handlers by which a
    signal would end all tests.
    """
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def lines_are_logged_again() -> None:
    """A command that ran in this process before this test may have asked for errors alone, and its test's
    neighbours would look in vain for lines that are there.
    """
    if structlog.is_configured():
        set_level("info")
