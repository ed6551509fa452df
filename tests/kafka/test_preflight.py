"""Whatever keeps a client out has words of its own, within seconds, and no secret in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streams.errors import StreamRefused
from streams.kafka.preflight import preflight
from streams.source import Address, KafkaSettings
from tests.harness.kafka.certificates import lock_key
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic, fresh_topic
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.refusals import assert_words, fault
from tests.harness.kafka.secured import PASSWORD, Secured

pytestmark = ONE_AT_A_TIME


@pytest.fixture(scope="module")
def readable(kafka_secured: Secured) -> str:
    """A topic that the user may read."""
    name = fresh_topic()
    create_topic(kafka_secured.cluster, name)
    kafka_secured.allow("READ", topic=name)
    return name


def test_with_the_right_settings_everybody_is_let_in(
    kafka: Cluster, kafka_secured: Secured, readable: str, topic: str
) -> None:
    create_topic(kafka, topic)
    preflight(Address("kafka", kafka.servers(), topic), "read", "write")
    preflight(Address("kafka", kafka_secured.door(), readable, kafka_secured.settings), "read")
    with_certificate = replace(
        kafka_secured.settings,
        security_protocol="SSL",
        ssl_certfile=str(kafka_secured.client_certificate),
        ssl_keyfile=str(kafka_secured.client_certificate),
    )
    for door, settings in (
        ("TLS", replace(kafka_secured.settings, security_protocol="SSL")),
        ("MUTUAL", with_certificate),
        ("PASSWORDS", replace(kafka_secured.settings, security_protocol="SASL_PLAINTEXT")),
        ("STRANGER", replace(kafka_secured.settings, ssl_check_hostname=False)),
    ):
        preflight(Address("kafka", kafka_secured.door(door), readable, settings), "read")


WRONG_SETTINGS: dict[str, tuple[str, Callable[[KafkaSettings, Secured], KafkaSettings], str]] = {
    "TLS expected, plaintext spoken": (
        "PLAINTEXT",
        lambda right, _: right,
        r"without TLS.* or set security_protocol = SASL_PLAINTEXT",
    ),
    "plaintext expected, TLS spoken": (
        "SASL_SSL",
        lambda right, _: replace(right, security_protocol="SASL_PLAINTEXT"),
        r"speaks TLS, .* set security_protocol = SASL_SSL",
    ),
    "no security at all": ("SASL_SSL", lambda *_: KafkaSettings(), r"speaks TLS.*PLAINTEXT does not: set"),
    "wrong authority": (
        "SASL_SSL",
        lambda right, secured: replace(right, ssl_cafile=str(secured.stranger.cafile)),
        r"not signed by an authority in ssl_cafile \(.*stranger-ca.pem\): name the file",
    ),
    "no authority": (
        "SASL_SSL",
        lambda right, _: replace(right, ssl_cafile=None),
        r"this machine trusts: set ssl_cafile",
    ),
    "expired": ("EXPIRED", lambda right, _: right, r"has expired: renew it"),
    "wrong host": ("STRANGER", lambda right, _: right, r"is for another host: use a host name that it lists"),
    "wrong mechanism": (
        "SASL_SSL",
        lambda right, _: replace(right, sasl_mechanism="SCRAM-SHA-256"),
        r"does not offer the mechanism SCRAM-SHA-256, but SCRAM-SHA-512: correct sasl_mechanism",
    ),
    "unknown mechanism": (
        "SASL_SSL",
        lambda right, _: replace(right, sasl_mechanism="GUESS"),
        r"is GUESS: it must be one of",
    ),
    "wrong password": (
        "SASL_SSL",
        lambda right, _: replace(right, sasl_password=PASSWORD + "x"),
        r"does not accept the user 'learner' with this password: correct",
    ),
    "wrong user": (
        "SASL_SSL",
        lambda right, _: replace(right, sasl_username="nil"),
        r"not accept the user 'nil' with",
    ),
    "no password": (
        "SASL_SSL",
        lambda right, _: replace(right, sasl_password=None),
        r"needs sasl_username and sasl_pass",
    ),
    "password wanted, over TLS": (
        "SASL_SSL",
        lambda right, _: replace(right, security_protocol="SSL"),
        r"asks for a user and a password: set security_protocol = SASL_SSL, .*it offers SCRAM-SHA-512",
    ),
    "password wanted": (
        "PASSWORDS",
        lambda *_: KafkaSettings(),
        r"password: set security_protocol = SASL_PLAINTEXT,",
    ),
    "password not wanted": (
        "TLS",
        lambda right, _: right,
        r"no password: set security_protocol = SSL",
    ),
    "client certificate wanted": (
        "MUTUAL",
        lambda right, _: replace(right, security_protocol="SSL"),
        r"asks for a client certificate: set ssl_certfile and ssl_keyfile",
    ),
    "client certificate of a stranger": (
        "MUTUAL",
        lambda right, secured: _with_certificate(right, secured.stranger.issue("nobody", "nobody.test")),
        r"does not accept the certificate in ssl_certfile",
    ),
}


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_a_wrong_setting_is_told_with_its_remedy(kafka_secured: Secured, readable: str, name: str) -> None:
    door, wrong, words = WRONG_SETTINGS[name]
    kind, told = fault(kafka_secured.door(door), wrong(kafka_secured.settings, kafka_secured), readable)
    assert kind is StreamRefused
    assert_words(told, words)


def test_a_password_is_checked_also_where_the_mechanism_has_no_proof(
    kafka_secured: Secured, readable: str
) -> None:
    door, right = kafka_secured.door("PASSWORDS"), kafka_secured.settings
    plain = replace(right, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    preflight(Address("kafka", door, readable, plain), "read")
    kind, told = fault(door, replace(plain, sasl_password=PASSWORD[1:]), readable)
    assert kind is StreamRefused
    assert_words(told, "does not accept the user 'learner' with this password")


def test_every_fault_has_words_of_its_own(kafka_secured: Secured, readable: str) -> None:
    """No two of the settings above are told alike, but for the place."""
    told = [
        fault(kafka_secured.door(door), wrong(kafka_secured.settings, kafka_secured), readable)[1].replace(
            kafka_secured.door(door), ""
        )
        for door, wrong, _ in WRONG_SETTINGS.values()
    ]
    assert len(set(told)) == len(told)


def test_files_that_cannot_be_used_are_named(kafka_secured: Secured, tmp_path: Path) -> None:
    door, right = kafka_secured.door(), kafka_secured.settings
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("no PEM")
    locked = lock_key(kafka_secured.client_certificate, "open sesame")
    for settings, words in (
        (
            replace(right, ssl_cafile="/nowhere/ca.pem"),
            r"ssl_cafile \(/nowhere/ca.pem\) cannot be read",
        ),
        (replace(right, ssl_cafile=str(no_pem)), r"ssl_cafile \(.*no.pem\) cannot be used"),
        (
            _with_certificate(right, no_pem),
            r"ssl_certfile and ssl_keyfile \(.*\) cannot be used",
        ),
        (_with_certificate(right, locked), r"needs its ssl_key_password"),
    ):
        kind, told = fault(door, settings)
        assert kind is StreamRefused
        assert_words(told, words)


def test_a_locked_key_opens_with_its_password(kafka_secured: Secured, readable: str) -> None:
    locked = lock_key(kafka_secured.client_certificate, "open sesame")
    settings = replace(_with_certificate(kafka_secured.settings, locked), ssl_key_password="open sesame")
    preflight(Address("kafka", kafka_secured.door("TLS"), readable, settings), "read")


def _with_certificate(right: KafkaSettings, file: Path) -> KafkaSettings:
    return replace(right, security_protocol="SSL", ssl_certfile=str(file), ssl_keyfile=str(file))
