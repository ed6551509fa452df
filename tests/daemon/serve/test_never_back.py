"""Two servers of which one lags: a client that names the state it has seen never gets an older one."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.client import AskClient, HttpAnswer, NotAnsweredError
from tests.daemon.serve.test_role import Place, Role
from tests.harness.waiting import until

QUESTIONS = 2000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.file.write_text(f"{made.file.read_text()}[steps]\nenabled = false\n")
    yield made
    made.end()


def server(place: Place, look_every: str, behind_wait: str = "20ms") -> Role:
    settings = ("--set", f"serve.look_every={look_every}", "--set", f"serve.behind_wait={behind_wait}")
    role = place.start("serve", *settings)
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    return role


def went_back(answers: list[HttpAnswer]) -> int:
    return sum(later.records < before.records for before, later in pairwise(answers))


def test_of_two_servers_a_monotonic_client_never_goes_back(place: Place) -> None:
    place.feed(20, seed=1)
    place.learn()
    urls = [server(place, "20ms").url(), server(place, "2s").url()]
    asking = [AskClient(urls, monotonic=one, patience_s=60.0, timeout_s=60.0) for one in (True, False)]
    found: list[list[HttpAnswer]] = [[], []]
    over = threading.Event()

    def ask(number: int) -> None:
        while not over.is_set() or len(found[number]) < QUESTIONS:
            found[number].append(asking[number].similar("o1", k=1, alias="latest"))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for one in threads:
        one.start()
    until(lambda: all(found), "both have an answer of the first state")
    for seed in (2, 3, 4):
        place.feed(20, seed=seed)
        place.learn()
    until(lambda: all(answers[-1].records == 240 for answers in found))
    over.set()
    for one in threads:
        one.join()
    monotonic, any_state = found
    assert went_back(any_state) > 0  # else nothing was tried
    assert went_back(monotonic) == 0
    assert {one.server for one in monotonic} == set(urls)
    assert monotonic[0].records == 60
    assert monotonic[-1].records == 240


def test_a_server_that_is_behind_waits_and_then_says_so(place: Place) -> None:
    place.feed(20, seed=1)
    place.learn()
    role = server(place, "20ms", behind_wait="300ms")
    now = AskClient(role.url()).similar("o1", alias="latest")

    def asked(at_least: str) -> tuple[int, str, dict[str, str]]:
        question = urllib.request.Request(
            f"{role.url()}/v1/similar?id=o1&alias=latest", headers={"X-Tripletd-At-Least": at_least}
        )
        try:
            with urllib.request.urlopen(question, timeout=30) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    assert asked(f"{now.line}@{now.records}")[0] == asked(now.version)[0] == 200
    for beyond in (f"{now.line}@{now.records + 1}", f"another@{now.records}", "99"):
        status, body, headers = asked(beyond)
        assert (status, headers["retry-after"]) == (503, "1")
        assert '"code": "behind"' in body
        assert f"{now.line}@{now.records}" in body
    for wrong in ("12+3400", "-1", "", "a@b", "9" * 19):
        assert asked(wrong)[0] == 422
    pinned = AskClient(role.url(), monotonic=True, patience_s=0.5)
    pinned.similar("o1", alias="latest")
    pinned._pins["latest"] = (now.line, now.records + 1)
    with pytest.raises(NotAnsweredError, match="needs") as behind:
        pinned.similar("o1", alias="latest")
    assert (behind.value.status, behind.value.code) == (503, "behind")
    pinned.forget("latest")
    assert pinned.similar("o1", alias="latest").records == now.records
