"""kafka-python makes classes when they are first asked for, and not safely: none may be left to make."""

from __future__ import annotations

import subprocess
import sys

import pytest

HURRIED = """
import gc, sys, threading
sys.setswitchinterval(1e-6)
import {module}
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage

class Header:
    def __init__(self, key, version):
        self.request_api_key, self.request_api_version = key, version

def ask(header, barrier):
    barrier.wait()
    ResponseClassRegistry.get_response_class(header)

kinds = [kind for kind in ApiMessage.__subclasses__() if not kind.is_request() and kind[None] is kind]
made = len(ApiMessage.__subclasses__())
for kind in kinds:
    header, barrier = Header(kind.API_KEY, kind.max_version), threading.Barrier(4)
    threads = [threading.Thread(target=ask, args=(header, barrier)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    ResponseClassRegistry.get_response_class(header)
print(len(kinds), len(ApiMessage.__subclasses__()) - made)
"""


def asked_at_once(module: str) -> list[str]:
    command = [sys.executable, "-c", HURRIED.replace("{module}", module)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("name", ["connect", "probe"])
def test_no_class_of_an_answer_is_made_by_threads(name: str) -> None:
    kinds, made_late = asked_at_once(f"streams.kafka.{name}")
    assert int(kinds) > 20
    assert made_late == "0"


def test_kafka_python_still_makes_them_late_by_itself() -> None:
    _, made_late = asked_at_once("kafka.admin")
    assert int(made_late) > 20
