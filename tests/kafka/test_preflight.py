"""Whatever keeps a client out has words of its own, within seconds, and no secret in them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streams.address import Address
from streams.errors import StreamError, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.preflight import preflight
from streams.kafka.settings import KafkaSettings
from tests.kafka.certificates import lock_key
from tests.kafka.cluster import Cluster
from tests.kafka.control import create_topic, fresh_topic
from tests.kafka.fixtures import ONE_AT_A_TIME
from tests.kafka.ports import free_ports
from tests.kafka.properties import Listener
from tests.kafka.secured import MECHANISM, PASSWORD, USER, Secured
from tests.kafka.strangers import listener, web_server

pytestmark = ONE_AT_A_TIME

PROMISED_S = 5.0


def fault(path: str, settings: KafkaSettings, topic: str = "clicks", *needs: str) -> tuple[type, str]:
    """The kind and the words of what preflight raises, which is in time and tells no password."""
    began = time.monotonic()
    with pytest.raises(StreamError) as raised:
        preflight(Address("kafka", path, topic, settings), *(needs or ("read",)))
    assert time.monotonic() - began < PROMISED_S
    told = str(raised.value)
    assert path.split(":", maxsplit=1)[0] in told
    error: BaseException | None = raised.value
    while error is not None:  # the causes may be logged as well
        assert PASSWORD not in f"{error!r}"
        error = error.__cause__
    return type(raised.value), told


@pytest.fixture(scope="module")
def let_in(kafka_secured: Secured) -> KafkaSettings:
    """The settings that are right for the door SASL_SSL."""
    return KafkaSettings(
        security_protocol="SASL_SSL",
        sasl_mechanism=MECHANISM,
        sasl_username=USER,
        sasl_password=PASSWORD,
        ssl_cafile=str(kafka_secured.authority.cafile),
    )


@pytest.fixture(scope="module")
def readable(kafka_secured: Secured) -> str:
    """A topic that the user may read."""
    name = fresh_topic()
    create_topic(kafka_secured.cluster, name)
    kafka_secured.allow("READ", topic=name)
    return name


def test_with_the_right_settings_everybody_is_let_in(
    kafka: Cluster, kafka_secured: Secured, let_in: KafkaSettings, readable: str, topic: str
) -> None:
    create_topic(kafka, topic)
    preflight(Address("kafka", kafka.servers(), topic), "read", "write")
    preflight(Address("kafka", kafka_secured.door(), readable, let_in), "read")
    with_certificate = replace(
        let_in,
        security_protocol="SSL",
        ssl_certfile=str(kafka_secured.client_certificate),
        ssl_keyfile=str(kafka_secured.client_certificate),
    )
    for door, settings in (
        ("TLS", replace(let_in, security_protocol="SSL")),
        ("MUTUAL", with_certificate),
        ("PASSWORDS", replace(let_in, security_protocol="SASL_PLAINTEXT")),
        ("STRANGER", replace(let_in, ssl_check_hostname=False)),
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
def test_a_wrong_setting_is_told_with_its_remedy(
    kafka_secured: Secured, let_in: KafkaSettings, readable: str, name: str
) -> None:
    door, wrong, words = WRONG_SETTINGS[name]
    kind, told = fault(kafka_secured.door(door), wrong(let_in, kafka_secured), readable)
    assert kind is StreamRefused
    assert_words(told, words)


def test_every_fault_has_words_of_its_own(
    kafka_secured: Secured, let_in: KafkaSettings, readable: str
) -> None:
    """No two of the settings above are told alike, but for the place."""
    told = [
        fault(kafka_secured.door(door), wrong(let_in, kafka_secured), readable)[1].replace(
            kafka_secured.door(door), ""
        )
        for door, wrong, _ in WRONG_SETTINGS.values()
    ]
    assert len(set(told)) == len(told)


def test_files_that_cannot_be_used_are_named(
    kafka_secured: Secured, let_in: KafkaSettings, tmp_path: Path
) -> None:
    door = kafka_secured.door()
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("no PEM")
    locked = lock_key(kafka_secured.client_certificate, "open sesame")
    for settings, words in (
        (replace(let_in, ssl_cafile="/nowhere/ca.pem"), r"ssl_cafile \(/nowhere/ca.pem\) cannot be read"),
        (replace(let_in, ssl_cafile=str(no_pem)), r"ssl_cafile \(.*no.pem\) cannot be used"),
        (_with_certificate(let_in, no_pem), r"ssl_certfile and ssl_keyfile \(.*\) cannot be used"),
        (_with_certificate(let_in, locked), r"needs its ssl_key_password"),
    ):
        kind, told = fault(door, settings)
        assert kind is StreamRefused
        assert_words(told, words)


def test_a_locked_key_opens_with_its_password(
    kafka_secured: Secured, let_in: KafkaSettings, readable: str
) -> None:
    locked = lock_key(kafka_secured.client_certificate, "open sesame")
    settings = replace(_with_certificate(let_in, locked), ssl_key_password="open sesame")
    preflight(Address("kafka", kafka_secured.door("TLS"), readable, settings), "read")


@pytest.mark.parametrize(
    ("granted", "need", "missing"),
    [
        ((), "read", "DESCRIBE"),
        (("DESCRIBE",), "read", "READ"),
        (("READ",), "write", "WRITE"),
        (("READ", "WRITE"), "create", "CREATE"),
    ],
)
def test_a_missing_permission_is_named(
    kafka_secured: Secured,
    let_in: KafkaSettings,
    topic: str,
    granted: tuple[str, ...],
    need: str,
    missing: str,
) -> None:
    if need != "create":
        create_topic(kafka_secured.cluster, topic)
    if granted:
        kafka_secured.allow(*granted, topic=topic)
    kind, told = fault(kafka_secured.door(), let_in, topic, need)
    assert kind is StreamRefused
    assert_words(told, f"the user 'learner' may not {missing} the topic '{topic}': permit it")
    kafka_secured.allow(missing, "READ", topic=topic)
    preflight(Address("kafka", kafka_secured.door(), topic, let_in), need)


def test_a_missing_topic_is_not_a_missing_permission(
    kafka: Cluster, kafka_secured: Secured, let_in: KafkaSettings, topic: str
) -> None:
    kafka_secured.allow("DESCRIBE", topic=topic)
    for path, settings in ((kafka.servers(), KafkaSettings()), (kafka_secured.door(), let_in)):
        kind, told = fault(path, settings, topic)
        assert kind is TopicMissing
        assert_words(told, "tripletd topics create")


def test_who_listens_is_told(kafka: Cluster, topic: str) -> None:
    secure = KafkaSettings(security_protocol="SSL")
    closed = f"127.0.0.1:{free_ports(1)[0]}"
    for settings in (KafkaSettings(), secure):
        assert_fault(closed, settings, StreamUnavailable, "nobody listens")
        with web_server() as place:
            assert_fault(place, settings, StreamRefused, "is a web server, not a Kafka broker")
        with listener(b"220 mail.test ESMTP\r\n") as place:
            assert_fault(place, settings, StreamRefused, "does not speak Kafka's language")
        with listener(None) as place:
            assert_fault(place, settings, StreamUnavailable, "accepts connections but does not answer")
    unknown = "no-such-host.invalid:9092"
    assert_fault(unknown, KafkaSettings(), StreamUnavailable, "no address is known for the host 'no-such")
    create_topic(kafka, topic)
    preflight(Address("kafka", f"{closed},{unknown},{kafka.servers()}", topic), "read")
    both = f"{closed},{unknown}"
    assert_fault(both, KafkaSettings(), StreamUnavailable, "nobody listens.*no address is known")


def test_a_frozen_broker_is_unavailable_not_refusing(topic: str) -> None:
    with Cluster() as cluster:
        cluster.nodes[1].freeze()
        for settings in (KafkaSettings(), KafkaSettings(security_protocol="SSL")):
            assert_fault(cluster.servers(), settings, StreamUnavailable, "does not answer")


def test_brokers_that_send_their_clients_astray_are_named(topic: str) -> None:
    astray = Listener("ASTRAY", "PLAINTEXT", advertised="no-such-host.invalid:9092")
    with Cluster(listeners=[astray]) as cluster:
        kind, told = fault(cluster.servers("ASTRAY"), KafkaSettings(), topic, "create")
    assert kind is StreamUnavailable
    assert_words(told, r"sends its clients on \(advertised.listeners\), but there: no address is known")


def assert_fault(path: str, settings: KafkaSettings, kind: type, words: str) -> None:
    found, told = fault(path, settings)
    assert (found, told) == (kind, told)
    assert_words(told, words)


def assert_words(told: str, words: str) -> None:
    __tracebackhide__ = True
    assert re.search(words, told), told


def _with_certificate(right: KafkaSettings, file: Path) -> KafkaSettings:
    return replace(right, security_protocol="SSL", ssl_certfile=str(file), ssl_keyfile=str(file))
