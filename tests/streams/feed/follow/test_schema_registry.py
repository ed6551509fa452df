"""Asking a registry: what is sent, what is kept, and how one that is away or unwilling is waited for."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import pytest
import trustme

from streams.errors import StreamUnavailable
from streams.feed.follow.intake import ABSENT_SECONDS, Intake
from streams.feed.follow.registry import (
    LONGEST_PAUSE_S,
    MOST_BYTES,
    MOST_REFERENCES,
    TRIES,
    UNKNOWN_FOR_S,
    RegisteredSchema,
    RegistrySettings,
    SchemaRegistry,
    UnknownSchemaError,
)
from streams.feed.follow.schemas import SchemaDecoder
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.harness.schema_registry import RegistryServer
from tests.harness.waiting import until

LONG = '{"type": "long"}'


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    one = RegistryServer()
    one.add(1, "AVRO", LONG)
    yield one
    one.stop()


def registry(server: RegistryServer, folder: Path, clock: Clock | None = None, **more: str) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings(server.url, **more), folder, clock=clock or Clock())


def test_a_schema_is_asked_for_once_and_kept(server: RegistryServer, tmp_path: Path) -> None:
    found = registry(server, tmp_path / "kept").schema(1)
    assert found == RegisteredSchema("AVRO", LONG)
    server.failing = 500
    assert registry(server, tmp_path / "kept").schema(1) == found
    assert server.asked == ["/schemas/ids/1"]
    server.asked.clear()
    other = SchemaRegistry(RegistrySettings(server.url + "/contexts/.other"), tmp_path / "kept")
    with pytest.raises(StreamUnavailable, match="500"):
        other.schema(1)
    assert server.asked[0] == "/contexts/.other/schemas/ids/1", "ids of another registry are others"


def test_a_damaged_file_is_fetched_again(server: RegistryServer, tmp_path: Path) -> None:
    registry(server, tmp_path).schema(1)
    for damage in ("", "{", "[]", '{"registry": 1}', json.dumps({"registry": server.url, "kind": "AVRO"})):
        (tmp_path / "1.json").write_text(damage)
        assert registry(server, tmp_path).schema(1).text == LONG
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("user", "secret", "said"),
    [
        ("", "t0ken", "Bearer t0ken"),
        ("anna", "pass:wörd", "Basic " + base64.b64encode("anna:pass:wörd".encode()).decode()),
    ],
)
def test_who_asks(server: RegistryServer, tmp_path: Path, user: str, secret: str, said: str) -> None:
    server.wanted = said
    with pytest.raises(StreamUnavailable, match=r"401; see feed\.follow\.registry\.user and secret"):
        registry(server, tmp_path).schema(1)
    assert registry(server, tmp_path, user=user, secret=secret).schema(1).text == LONG


def test_one_that_is_away_is_asked_again_after_pauses_that_grow(
    server: RegistryServer, tmp_path: Path
) -> None:
    clock, failed = Clock(), []
    settings = RegistrySettings(server.url)
    asking = SchemaRegistry(settings, tmp_path, lambda: failed.append(clock.now), clock, lambda: 0.5)
    server.stop()
    while clock.now < 200:
        with pytest.raises(StreamUnavailable, match="refused"):
            asking.schema(1)
        clock.now += 0.5
    pauses = [later - at for at, later in pairwise(failed)]
    assert pauses[:7] == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE_S]
    assert set(pauses[7:]) == {LONGEST_PAUSE_S}
    server.start()
    clock.now += LONGEST_PAUSE_S
    assert asking.schema(1).text == LONG
    server.failing = 503
    with pytest.raises(StreamUnavailable, match="503: told to fail"):
        asking.schema(2)
    server.failing = 0
    clock.now += 0.5
    with pytest.raises(UnknownSchemaError):
        asking.schema(2)


def test_an_unknown_schema_is_asked_for_again_later(server: RegistryServer, tmp_path: Path) -> None:
    clock = Clock()
    asking = registry(server, tmp_path, clock)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError, match="Schema 2 not found"):
            asking.schema(2)
    assert server.asked == ["/schemas/ids/2"]
    server.add(2, "AVRO", LONG)
    clock.now += UNKNOWN_FOR_S
    assert asking.schema(2).text == LONG


def test_another_server_is_no_registry(server: RegistryServer, tmp_path: Path) -> None:
    elsewhere = SchemaRegistry(RegistrySettings(server.url + "/elsewhere"), tmp_path)
    server.failing = 404
    with pytest.raises(StreamUnavailable, match=r"404.*see feed\.follow\.registry\.url"):
        elsewhere.schema(1)


def test_an_answer_without_an_end_is_not_read(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as listening:
        url = f"http://localhost:{listening.getsockname()[1]}"
        asking = SchemaRegistry(RegistrySettings(url, timeout_s=0.2), tmp_path)
        with pytest.raises(StreamUnavailable, match="did not answer within"):
            asking.schema(1)


BAD = {
    "null": (200, b"null"),
    "a list": (200, b"[1]"),
    "a page": (200, b"<html>"),
    "nothing": (200, b""),
    "no schema": (200, b'{"schema": 7}'),
    "a surrogate": (200, b'{"schema": "\\ud83d"}'),
    "a number of references": (200, b'{"schema": "x", "references": 7}'),
    "references that are none": (200, b'{"schema": "x", "references": [[], {}]}'),
    "nested": (200, b"[" * 90_000),
    "long": (200, b'"' + b"x" * MOST_BYTES),
    "not there": (404, b"<html>"),
    "elsewhere": (307, b""),
    "unheard of": (999, b"{}"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_with_one_schema_holds_up_no_other(
    server: RegistryServer, tmp_path: Path, what: str
) -> None:
    server.raw["/schemas/ids/7"] = BAD[what]
    clock = Clock()
    asking = registry(server, tmp_path, clock)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError):
            asking.schema(7)
        assert asking.schema(1).text == LONG
    assert server.asked.count("/schemas/ids/7") == 1
    del server.raw["/schemas/ids/7"]
    server.add(7, "AVRO", LONG)
    clock.now += UNKNOWN_FOR_S
    assert asking.schema(7).text == LONG


def test_a_schema_that_fails_again_and_again_is_given_up_and_credentials_that_never_opened_anything_are_not(
    server: RegistryServer, tmp_path: Path
) -> None:
    clock = Clock()
    asking = registry(server, tmp_path, clock)

    def ask(key: int) -> str:
        clock.now += LONGEST_PAUSE_S * 2
        try:
            return asking.schema(key).text
        except (UnknownSchemaError, StreamUnavailable) as error:
            return type(error).__name__

    server.raw["/schemas/ids/7"] = (500, b'{"error_code": 50001, "message": "no"}')
    assert [ask(7) for _ in range(TRIES)] == ["StreamUnavailable"] * (TRIES - 1) + ["UnknownSchemaError"]
    server.failing = 503
    assert [ask(8) for _ in range(2 * TRIES)] == ["StreamUnavailable"] * 2 * TRIES
    server.failing = 0
    server.raw["/schemas/ids/9"] = (403, b"{}")
    assert [ask(9), ask(1), ask(9)] == ["StreamUnavailable", LONG, "UnknownSchemaError"]


def test_a_registry_that_drips_is_left_in_bounded_time(tmp_path: Path) -> None:
    over, asked = threading.Event(), 0

    def drip(listening: socket.socket) -> None:
        nonlocal asked
        while not over.is_set():
            with suppress(OSError):
                connection, _ = listening.accept()
                asked += 1
                with connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n")
                    while not over.wait(0.02):
                        connection.sendall(b"X: 1\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(StreamUnavailable, match="did not answer within"):
            SchemaRegistry(RegistrySettings(url, timeout_s=0.2), tmp_path).schema(1)
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(30)
    assert asked == 2, "the schema, and whether it answers anything else"


def test_references_come_each_after_what_it_needs(server: RegistryServer, tmp_path: Path) -> None:
    server.add(10, "AVRO", "leaf", subject="leaf")
    server.add(11, "AVRO", "left", subject="left", references=[("Leaf", "leaf", 1)])
    server.add(12, "AVRO", "right", subject="right", references=[("Leaf", "leaf", 1), ("Left", "left", 1)])
    server.add(13, "AVRO", "top", references=[("Right", "right", 1), ("Left", "left", 1)])
    found = registry(server, tmp_path).schema(13)
    assert found.references == (("Leaf", "leaf"), ("Left", "left"), ("Right", "right"))
    assert registry(server, tmp_path).schema(13) == found
    assert len([path for path in server.asked if path.startswith("/subjects")]) == 3


def test_references_that_never_end(server: RegistryServer, tmp_path: Path) -> None:
    server.add(10, "AVRO", "a", subject="a", references=[("B", "b", 1)])
    server.add(11, "AVRO", "b", subject="b", references=[("A", "a", 1)])
    assert len(registry(server, tmp_path).schema(10).references) == 2
    many = [(f"N{number}", f"n{number}", 1) for number in range(MOST_REFERENCES + 1)]
    for name, subject, _ in many:
        server.add(100, "AVRO", name, subject=subject)
    server.add(12, "AVRO", "c", references=many)
    with pytest.raises(UnknownSchemaError, match="more than"):
        registry(server, tmp_path).schema(12)


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = RegistryServer(context)
    server.add(1, "AVRO", LONG)
    with pytest.raises(StreamUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        registry(server, tmp_path).schema(1)
    assert registry(server, tmp_path, cafile=str(tmp_path / "ca.pem")).schema(1).text == LONG
    server.stop()
    with pytest.raises(OSError, match="No such file"):
        registry(server, tmp_path, cafile=str(tmp_path / "none.pem"))


def _places(intake: Intake, now: float) -> list[str]:
    """What is read until all rests."""
    found = []
    while (one := intake.next(100, now)) is not None:
        lane, records = one
        lane.saw(1_000 * len(found) + 1_000)
        found += [f"{record.place.rpartition(':')[2]} {record.value}" for record in records]
    return found


def test_records_wait_for_their_schema_and_those_before_go_on(server: RegistryServer, tmp_path: Path) -> None:
    address = f"log:{tmp_path}/clicks.log#raw"
    ensure_topic(parse_address(address), 1)
    server.add(2, "AVRO", LONG)
    values = [b"\0\0\0\0\1\2", b'{"a":1}', b"\0\0\0\0\2\4", b"\0\0\0\0\1\6"]
    with closing(open_sink(parse_address(address))) as sink:
        sink.send([OutRecord(value) for value in values])
    asking = SchemaRegistry(RegistrySettings(server.url), tmp_path / "schemas")
    asking.schema(1)
    server.stop()
    intake = Intake([address], {}, 0, schemas=SchemaDecoder(asking))
    assert _places(intake, 0.0) == ["0 1", "1 b'{\"a\":1}'"]
    assert len(intake.trouble()) == 1
    assert "refused" in intake.trouble()[0]
    assert not intake.at_rest()
    held = intake.watermark(0.0)
    assert intake.watermark(100.0) == held, "the clock closes nothing while records wait"
    assert intake.behind() == {address: 2}
    places = intake.places()
    assert places[address]["at"] == {"0": (2, 1_000)}
    again = SchemaDecoder(SchemaRegistry(RegistrySettings(server.url), tmp_path / "schemas"))
    later = Intake([address], places, 0, schemas=again)
    assert _places(later, 0.0) == []
    server.start()
    for one in (later, intake):
        times = count(ABSENT_SECONDS, ABSENT_SECONDS)  # the pause of the registry is of the clock
        found = until(partial(lambda one: _places(one, next(times)), one))
        assert found == ["2 2", "3 3"]
        assert one.trouble() == []
        one.close()
