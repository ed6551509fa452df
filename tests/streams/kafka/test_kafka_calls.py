"""Calls of a library that may never come back, and what it says to its log."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from streams.errors import StreamUnavailable
from streams.kafka.connect import call_within
from streams.kafka.source import Connection
from tests.streams.kafka.parts import Torn


def test_a_call_ends_in_time_and_a_late_result_is_thrown_away():
    go, thrown = threading.Event(), []
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        call_within(0.05, lambda: go.wait(30) and "late", thrown.append)
    assert time.monotonic() - began < 20
    go.set()
    while not thrown:
        time.sleep(0.001)
    assert thrown == ["late"]
    assert call_within(30, lambda: 7, thrown.append) == 7
    with pytest.raises(KeyError):
        call_within(30, lambda: {}["x"], thrown.append)
    assert thrown == ["late"]


def test_a_new_client_is_waited_for_in_pieces():
    go, made, closed = threading.Event(), [], []

    class Slow(Torn):
        def close(self):
            closed.append(self)

    def make():
        made.append(1)
        go.wait(30)
        return Slow((), 10)

    connection = Connection(make)
    for _ in range(3):
        assert connection.client({0: 3}, 0.01) is None
    go.set()
    client = connection.client({0: 3}, 30)
    assert client.positions() == {0: 3}
    assert connection.client({0: 9}, 0) is client
    assert len(made) == 1
    connection.drop()
    assert closed == [client]
    go.clear()
    assert connection.client({0: 3}, 0) is None
    connection.close()
    go.set()
    while len(closed) < 2:
        time.sleep(0.001)


def test_a_client_that_cannot_be_made_is_tried_again():
    def make():
        raise StreamUnavailable("no broker")

    connection = Connection(make)
    for _ in range(2):
        with pytest.raises(StreamUnavailable):
            connection.client({0: 0}, 30)


@pytest.mark.parametrize("level", ["DEBUG", "WARNING"])
def test_the_client_s_own_lines_are_not_printed_and_hold_no_password(level):
    code = f"""
import logging, sys
root = logging.getLogger()
root.setLevel({level!r})
if {level!r} == "DEBUG": root.addHandler(logging.StreamHandler())
from streams.source import Address
from streams.source import KafkaSettings
from streams.kafka.admin import Admin
kafka = KafkaSettings(sasl_mechanism="PLAIN", security_protocol="SASL_PLAINTEXT", sasl_username="me",
                      sasl_password="hunter2", ssl_key_password="hunter3", timeout_s=0.3)
admin = Admin(Address("kafka", "127.0.0.1:1", "clicks", kafka))
try:
    admin.identity()
except Exception as error:
    print(type(error).__name__)
admin.close()
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "StreamUnavailable\n"
    assert "hunter" not in told.stderr
    assert (told.stderr == "") is (level == "WARNING")
