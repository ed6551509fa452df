"""The load that measures: it asks on time, keeps every answer, and hides neither waiting nor failing."""

from __future__ import annotations

import json
import threading
import time

from daemon.serve.http import HttpLimits
from tests.benchmarks.load import Load, beside, summary
from tests.daemon.serve.http.toy import HOST, Served, running

QUESTIONS = [json.dumps({"id": f"o{n}", "k": 3}).encode() for n in range(7)]


def test_every_question_is_asked_once_and_kept_with_its_answer(served: Served) -> None:
    with beside(Load(HOST, served.port, QUESTIONS, rate=100, seconds=1.0, connections=4)) as told:
        pass
    assert len(told.asked) == 100
    assert [one.question for one in told.asked] == [n % 7 for n in range(100)]
    alone = [served.post(body)[1]["results"] for body in QUESTIONS]
    assert all(json.loads(one.answer)["results"] == alone[one.question] for one in told.asked)
    found = summary(told.asked)
    assert (found["failed"], found["statuses"]) == (0, {200: 100})
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


def test_a_server_that_stands_still_shows_in_every_question_that_was_due() -> None:
    with running() as served:
        served.searcher.gate.clear()

        def stand_still() -> None:
            served.searcher.entered.wait(30)  # from the first question on, however late that is
            time.sleep(1.0)
            served.searcher.gate.set()

        threading.Thread(target=stand_still).start()
        asked = Load(HOST, served.port, QUESTIONS, rate=50, seconds=0.8, connections=2).run()
    assert len(asked) == 40
    # A load that waits for answers before it asks again would have had two slow ones, one per connection.
    assert sum(one.seconds >= 0.3 for one in asked) >= 10
    assert summary(asked)["max_ms"] >= 500


def test_failures_are_counted_by_status() -> None:
    with running(HttpLimits(k_max=2)) as served:
        asked = Load(HOST, served.port, QUESTIONS, rate=50, seconds=0.2, connections=2).run()
        port = served.port
    assert summary(asked)["statuses"] == {422: 10}
    asked = Load(HOST, port, QUESTIONS, rate=50, seconds=0.2, connections=2).run()
    assert summary(asked) == {"asked": 10, "failed": 10, "statuses": {0: 10}}
