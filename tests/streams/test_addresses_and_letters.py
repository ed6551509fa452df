"""Addresses and dead letters: read, written, and refused with a reason."""

import pytest

from streams.address import Address, parse_address
from streams.deadletter import DeadLetter, dead_letter_record, parse_dead_letter
from streams.errors import AddressError, StreamError, StreamUnavailable


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("log:clicks.log", Address("log", "clicks.log", "triplets")),
        ("log:/var/lib/t/clicks.log#shop-1", Address("log", "/var/lib/t/clicks.log", "shop-1")),
        ("log:dir with spaces/c:licks.log", Address("log", "dir with spaces/c:licks.log", "triplets")),
        ("memory:trial#a.b_c", Address("memory", "trial", "a.b_c")),
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
        ("kafka://host:9092/topic", "Kafka is not available in this release; use `log:"),
    ],
)
def test_what_is_no_address(text, message):
    with pytest.raises(AddressError, match=message):
        parse_address(text)


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
    others = set(StreamError.__subclasses__()) - {StreamUnavailable}
    assert len(others) == 8
    assert not any(error.retriable for error in others)
