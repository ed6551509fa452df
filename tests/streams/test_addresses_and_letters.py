"""Addresses and dead letters: read, written, and refused with a reason."""

from dataclasses import replace

import pytest

from streams.errors import AddressError, StreamError, StreamUnavailable
from streams.poison import DeadLetter, dead_letter_record, parse_dead_letter
from streams.source import Address, KafkaSettings, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("log:clicks.log", Address("log", "clicks.log", "triplets")),
        ("log:/var/lib/t/clicks.log#shop-1", Address("log", "/var/lib/t/clicks.log", "shop-1")),
        ("log:dir with spaces/c:licks.log", Address("log", "dir with spaces/c:licks.log", "triplets")),
        ("memory:trial#a.b_c", Address("memory", "trial", "a.b_c")),
        ("kafka://host:9093/shop-1", Address("kafka", "host:9093", "shop-1")),
        ("kafka://one,two:1/", Address("kafka", "one:9092,two:1", "triplets")),
        ("kafka://host", Address("kafka", "host:9092", "triplets")),
        ("kafka://[::1]:9093/t", Address("kafka", "[::1]:9093", "t")),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address
    assert parse_address(str(address)) == address
    assert (address.holdout.topic, address.dead.topic) == (
        address.topic + ".holdout",
        address.topic + ".dead",
    )
    assert address.holdout.path == address.path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clicks.log", "not a stream address: use `log:"),
        ("", "not a stream address"),
        ("file:clicks.log", "not a stream address"),
        ("log:", "names no file"),
        ("log:#topic", "names no file"),
        ("log:a\0b", "names no file"),
        ("memory:", "names no log"),
        ("log:a#", "a topic is"),
        ("log:a#with space", "a topic is"),
        ("log:a#../b", "a topic is"),
        ("log:a#" + "x" * 201, "a topic is"),
        ("kafka:host:9092/topic", "begins with kafka://"),
        ("kafka:///topic", "'' is no host"),
        ("kafka://a,,b/topic", "'' is no host"),
        ("kafka://a b/topic", "'a b' is no host"),
        ("kafka://host:0/topic", "'0' is no port"),
        ("kafka://host:nine/topic", "'nine' is no port"),
        ("kafka://host/a/b", "a topic is"),
        ("kafka://host/..", "a topic is"),
    ],
)
def test_what_is_no_address(text, message):
    with pytest.raises(AddressError, match=message):
        parse_address(text)


def test_a_password_is_refused_in_an_address_and_repeated_nowhere():
    for text in ("kafka://me:hunter2@host/topic", "kafka:me:hunter2@host/topic"):
        with pytest.raises(AddressError) as refused:
            parse_address(text)
        assert "hunter2" not in str(refused.value)
    secrets = KafkaSettings(sasl_password="hunter2", ssl_key_password="hunter3")
    address = replace(parse_address("kafka://host/topic"), kafka=secrets)
    assert "hunter" not in f"{address} {address!r} {address.dead!r}"
    assert address.dead.kafka is address.holdout.kafka is secrets
    assert {address: 1}[address] == 1


@pytest.mark.parametrize("value", [b"\xc1\x00junk", b"", None])
def test_a_dead_letter_comes_back_as_it_was(value):
    letter = DeadLetter("clicks#1", 3, 2**40, "bad_text", "id: ünreadable", value)
    record = dead_letter_record(letter)
    assert record.value == value
    assert record.key == f"clicks#1/3/{2**40}".encode()
    assert parse_dead_letter(record.value, record.headers) == letter


def test_a_record_that_is_no_dead_letter():
    headers = dead_letter_record(DeadLetter("t", 0, 1, "r", "d", b"")).headers
    with pytest.raises(ValueError, match="'reason' is missing"):
        parse_dead_letter(b"", headers[1:])
    with pytest.raises(ValueError, match="not a dead letter"):
        parse_dead_letter(b"", (*headers[:4], ("offset", b"twelve")))
    with pytest.raises(ValueError, match="not a dead letter"):
        parse_dead_letter(b"", (("reason", b"\xff"), *headers[1:]))


def test_only_unavailability_is_worth_trying_again():
    assert StreamUnavailable.retriable
    others = {kind for kind in StreamError.__subclasses__() if kind.__module__ == StreamError.__module__}
    others.remove(StreamUnavailable)
    assert len(others) == 9
    assert not any(error.retriable for error in others)
