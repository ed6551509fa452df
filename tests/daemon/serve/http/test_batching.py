"""The queue and the compute thread: shared passes, and no wait without an end."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from daemon.runtime.watchdog import Pulse
from daemon.serve.http import HttpLimits
from daemon.serve.http.batching import Batcher, Job, PassTimes, take_pass
from daemon.serve.http.errors import Problem
from daemon.serve.http.limits import HttpMetrics
from daemon.serve.query import Answers, Query, QueryError
from tests.daemon.serve.http.clients import PATIENT
from tests.daemon.serve.http.toy import Served, ToySearcher, read_all, running
from tests.harness.waiting import until

QUESTION = {"x": [1, 2, 3, 4]}


def jobs(*asked: tuple[str, int]) -> deque[Job]:
    loop = asyncio.new_event_loop()
    made = deque(Job(alias, [Query(id="o1")] * count, 0.0, loop.create_future()) for alias, count in asked)
    loop.close()
    return made


@pytest.mark.parametrize(
    ("asked", "taken", "left"),
    [
        ([("a", 1)], [0], []),
        ([("a", 1)] * 20, list(range(16)), [16, 17, 18, 19]),
        ([("a", 1), ("b", 1), ("a", 1), ("b", 1)], [0, 2], [1, 3]),
        ([("b", 1), ("a", 1), ("a", 1)], [0], [1, 2]),
        ([("a", 40), ("a", 1)], [0], [1]),
        ([("a", 10), ("a", 6), ("a", 1)], [0, 1], [2]),
        ([("a", 10), ("a", 7), ("a", 1)], [0], [1, 2]),  # the third must not overtake the second
        ([("a", 1), ("b", 16), ("a", 15)], [0, 2], [1]),
    ],
)
def test_a_pass_takes_one_alias_up_to_sixteen_in_order(
    asked: list[tuple[str, int]], taken: list[int], left: list[int]
) -> None:
    waiting = jobs(*asked)
    places = {id(job): place for place, job in enumerate(waiting)}
    assert [places[id(job)] for job in take_pass(waiting, 16)] == taken
    assert [places[id(job)] for job in waiting] == left


class Crowd:
    """Clients in threads, with their answers."""

    def __init__(self, served: Served, bodies: Sequence[Any]) -> None:
        self.answers: list[tuple[int, Any]] = [(0, None)] * len(bodies)

        def ask(place: int, body: Any) -> None:
            self.answers[place] = served.post(body)

        self.threads = [threading.Thread(target=ask, args=one) for one in enumerate(bodies)]
        for thread in self.threads:
            thread.start()

    def join(self) -> list[tuple[int, Any]]:
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive(), "a client hangs"
        return self.answers


def hold(served: Served) -> None:
    """From now on every pass waits at the gate."""
    served.searcher.gate.clear()
    served.searcher.entered.clear()


def waiting(served: Served, count: int) -> None:
    """Until that many queries wait in the queue."""

    def waits() -> float:
        return served.metric("tripletd_http_waiting_queries")

    until(lambda: waits() == count, lambda: f"{waits()} wait, not {count}", 20.0)


def test_what_waits_shares_one_pass_per_alias() -> None:
    with running(PATIENT) as served:
        hold(served)
        first = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        bodies = [
            {"id": f"o{n % 10}", "k": 1 + n % 3, "alias": ("latest", "stable")[n % 2]} for n in range(20)
        ]
        crowd = Crowd(served, bodies)
        waiting(served, 20)
        served.searcher.gate.set()
        answers = crowd.join()
        first.join()
        assert sorted(len(one) for one in served.searcher.passes) == [1, 10, 10]
        alone = [served.post(body) for body in bodies]
    for together, single in zip(answers, alone, strict=True):
        assert together[0] == single[0] == 200
        assert together[1]["results"] == single[1]["results"]
        assert together[1]["exact"] == single[1]["exact"]
        assert together[1]["alias"] == single[1]["alias"]


def test_a_full_queue_answers_503_at_once_and_empties_again() -> None:
    with running(replace(PATIENT, queue=3)) as served:
        hold(served)
        stuck = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        crowd = Crowd(served, [QUESTION] * 3)
        waiting(served, 3)
        status, answer, headers = served.ask("POST", "/v1/similar", QUESTION)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "queue_full", "1")
        served.searcher.gate.set()
        assert [status for status, _ in stuck.join() + crowd.join()] == [200] * 4
        assert served.post(QUESTION)[0] == 200


def test_how_long_queries_take_is_told_by_the_passes_before() -> None:
    times = PassTimes(16)
    assert times.seconds_for(1000) == 0.0
    times.took(16, 0.4)
    assert times.seconds_for(40) == pytest.approx(1.0)
    times.took(1, 60.0)  # one that was held up
    times.took(64, 1.6)  # a request of as many as four passes
    assert times.seconds_for(40) == pytest.approx(1.0)
    for _ in range(9):
        times.took(1, 0.1)  # hardly less than a full one
    assert times.seconds_for(40) == pytest.approx(0.25)


def test_a_queue_that_would_take_too_long_answers_503_before_it_is_full() -> None:
    with running(replace(PATIENT, queue=100, queue_wait_s=0.2, pass_queries=1)) as served:
        hold(served)
        first = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        until(lambda held=time.monotonic(): time.monotonic() > held + 0.3)  # type: ignore[misc]
        served.searcher.gate.set()
        assert first.join()[0][0] == 200  # it took 0.3 s, and another one will as well
        hold(served)
        stuck = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        crowd = Crowd(served, [QUESTION])
        waiting(served, 1)
        status, answer, headers = served.ask("POST", "/v1/similar", QUESTION)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "queue_full", "1")
        (about,) = re.findall(r"for about (\S+) s", answer["error"]["message"])
        assert float(about) >= 0.3
        assert served.metric("tripletd_http_shed_total", bound="wait") == 1
        served.searcher.gate.set()
        assert [status for status, _ in stuck.join() + crowd.join()] == [200, 200]
        assert served.post(QUESTION)[0] == 200


EACH_S, ASKED_S, ANSWER_S = 0.002, 2.0, 0.3


@dataclass(frozen=True)
class Surge:
    """After how long each one was answered that was, and how many there was time for in all."""

    took: list[float]
    able: float


async def surge(queue_wait_s: float) -> Surge:
    """Twice as many questions as there is time for, or more: a busy machine takes longer for each."""
    loop = asyncio.get_running_loop()
    limits = HttpLimits(queue=100_000, answer_s=ANSWER_S, queue_wait_s=queue_wait_s)
    spent: list[float] = []

    class Slow(ToySearcher):
        def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
            began = time.monotonic()
            for _ in queries:
                between()
                time.sleep(EACH_S)
            found = super().search(alias, queries, between)
            spent.extend([(time.monotonic() - began) / len(queries)] * len(queries))
            return found

    batcher = Batcher(Slow(), limits, HttpMetrics(CollectorRegistry()))
    batcher.start()
    took: list[float] = []

    async def ask() -> None:
        began = loop.time()
        with suppress(Problem):
            await batcher.ask("latest", [Query(id="o1")])
            took.append(loop.time() - began)

    begin, asked = loop.time(), list[asyncio.Task[None]]()
    while (now := loop.time() - begin) < ASKED_S:
        asked += [loop.create_task(ask()) for _ in range(int(2 * now / EACH_S) - len(asked))]
        await asyncio.sleep(0.001)
    await asyncio.gather(*asked)
    batcher.close()
    return Surge(took, ASKED_S * len(spent) / sum(spent))


def test_of_twice_what_it_can_do_a_server_still_does_what_it_can() -> None:
    """In one of three tries: a busy machine may stand still in the others."""
    tried: list[tuple[float, float, float]] = []
    for _ in range(3):
        bounded, unbounded = (asyncio.run(surge(queue_wait_s)) for queue_wait_s in (0.1, 1e9))
        shares = [len(one.took) / one.able for one in (bounded, unbounded)]
        tried.append((shares[0], shares[1], max(bounded.took, default=0.0)))
        # Without a bound it computes for those who have gone: else nothing was tried.
        if shares[0] > 0.6 and shares[1] < 0.5 and tried[-1][2] < ANSWER_S:
            return
    raise AssertionError(tried)


def test_a_stuck_search_is_503_and_health_still_answers() -> None:
    with running(HttpLimits(answer_s=1.0)) as served:
        hold(served)
        first = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        answers = first.join() + Crowd(served, [QUESTION] * 2).join()
        assert [(status, answer["error"]["code"]) for status, answer in answers] == [(503, "too_slow")] * 3
        assert served.ask("GET", "/livez")[0] == 200
        served.searcher.gate.set()
        tries = next(n for n in range(1, 100) if served.post(QUESTION)[0] == 200)
        # Two nobody waits for any more: they are not computed.
        assert sum(len(one) for one in served.searcher.passes) <= 1 + tries


def test_a_failing_search_is_500_with_an_id_and_never_a_trace() -> None:
    with running() as served:
        served.searcher.fails = lambda queries: ZeroDivisionError("secret detail")
        status, answer = served.post(QUESTION)
        assert (status, answer["error"]["code"], answer["error"]["field"]) == (500, "bug", None)
        assert "secret" not in json.dumps(answer)
        assert served.metric("tripletd_http_bugs_total") == 1
        served.searcher.fails = lambda queries: None
        assert served.post(QUESTION)[0] == 200


def test_one_question_that_breaks_the_search_spoils_no_other() -> None:
    with running(PATIENT) as served:
        poison = {"id": "o9"}

        def fails(queries: Sequence[Query]) -> Exception | None:
            return ZeroDivisionError() if any(query.id == "o9" for query in queries) else None

        hold(served)
        first = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        crowd = Crowd(served, [QUESTION, poison, {"id": "o1"}])
        waiting(served, 3)
        served.searcher.fails = fails
        served.searcher.gate.set()
        assert [status for status, _ in crowd.join()] == [200, 500, 200]
        first.join()


def test_an_alias_that_cannot_answer_is_503_with_the_reason() -> None:
    with running() as served:
        served.searcher.fails = lambda queries: QueryError(
            "not_serving", "no version yet", "alias", "wait", 503
        )
        status, answer, headers = served.ask("POST", "/v1/similar", QUESTION)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "not_serving", "1")
        batch = served.post({"queries": [QUESTION]}, "/v1/similar/batch")
        assert (batch[0], batch[1]["error"]["field"]) == (503, "alias")


def test_questions_that_wait_when_the_server_ends_are_answered() -> None:
    with running(replace(PATIENT, drain_s=60.0)) as served:
        hold(served)
        first = Crowd(served, [QUESTION])
        assert served.searcher.entered.wait(30)
        crowd = Crowd(served, [QUESTION] * 2)
        waiting(served, 2)
        threading.Timer(0.3, served.searcher.gate.set).start()
        served.server.close()
        assert [status for status, _ in first.join() + crowd.join()] == [200] * 3


def test_a_closed_batcher_refuses_and_its_thread_ends() -> None:
    async def use() -> None:
        pulse = Pulse("search")
        batcher = Batcher(ToySearcher(), HttpLimits(), HttpMetrics(CollectorRegistry()), pulse)
        batcher.start()
        answers = await batcher.ask("latest", [Query(id="o1", k=2)])
        assert len(answers.results[0]) == 2  # type: ignore[arg-type]
        assert pulse.beats > 0
        batcher.close()
        with pytest.raises(Problem, match="ends"):
            await batcher.ask("latest", [Query(id="o1")])

    asyncio.run(use())
    assert not [thread for thread in threading.enumerate() if thread.name == "tripletd-search"]


def test_a_stuck_search_shows_in_its_pulse() -> None:
    async def use() -> None:
        pulse, searcher = Pulse("search"), ToySearcher()
        batcher = Batcher(searcher, HttpLimits(answer_s=2.0), HttpMetrics(CollectorRegistry()), pulse)
        batcher.start()
        searcher.gate.clear()
        with pytest.raises(Problem, match="no answer within"):
            await batcher.ask("latest", [Query(id="o1")])
        assert (pulse.doing, pulse.is_patient) == ("searching", False)
        searcher.gate.set()
        for _ in range(20):
            with suppress(Problem):  # too late once more: the machine is busy
                await batcher.ask("latest", [Query(id="o1")])
                break
        else:
            raise AssertionError("it answers no more")
        batcher.close()
        until(lambda: pulse.is_patient)

    asyncio.run(use())


def test_requests_that_share_a_pass_get_what_is_said_of_their_own_queries() -> None:
    class Estimating(ToySearcher):
        def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
            answers = super().search(alias, queries, between)
            each = [
                replace(one, recall=query.k / 100) for one, query in zip(answers.each, queries, strict=True)
            ]
            return replace(answers, each=each)

    async def use() -> None:
        searcher = Estimating()
        batcher = Batcher(searcher, HttpLimits(answer_s=60.0), HttpMetrics(CollectorRegistry()))
        asked = [[1], [2, 3], [4]]
        asking = [
            asyncio.create_task(batcher.ask("latest", [Query(id="o1", k=k) for k in ks])) for ks in asked
        ]
        await asyncio.sleep(0)  # all three wait before there is a thread
        batcher.start()
        answers = await asyncio.gather(*asking)
        assert len(searcher.passes) == 1
        assert [[len(one.result) for one in got.each] for got in answers] == asked  # type: ignore[arg-type]
        assert [[one.recall for one in got.each] for got in answers] == [[0.01], [0.02, 0.03], [0.04]]
        batcher.close()

    asyncio.run(use())


def test_a_long_search_shows_life_and_ends_when_nobody_waits() -> None:
    class Endless(ToySearcher):
        def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
            while True:
                between()
                time.sleep(0.01)

    async def use() -> None:
        pulse = Pulse("search")
        batcher = Batcher(Endless(), HttpLimits(answer_s=0.5), HttpMetrics(CollectorRegistry()), pulse)
        batcher.start()
        for _ in range(2):
            with pytest.raises(Problem, match="no answer within"):
                await batcher.ask("latest", [Query(id="o1")])
            until(lambda: pulse.is_patient, "it goes on for nobody")
        assert pulse.beats > 10
        batcher.close()

    asyncio.run(use())


def test_a_client_that_hangs_up_does_not_hold_the_others() -> None:
    with running(PATIENT) as served:
        hold(served)
        body = json.dumps(QUESTION).encode()
        request = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
            len(body),
            body,
        )
        for _ in range(5):
            connection = served.connect()
            connection.sendall(request)
            connection.close()
        crowd = Crowd(served, [QUESTION] * 2)
        assert served.searcher.entered.wait(30)
        served.searcher.gate.set()
        assert [status for status, _ in crowd.join()] == [200, 200]
        with served.connect() as connection:
            connection.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert read_all(connection).startswith(b"HTTP/1.1 200")
