"""[stream.kafka]: what is taken, what is refused and how, and that no secret is ever shown."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from daemon.config import Config, load_config, parse_setting
from daemon.config import services as kafka_section
from daemon.exits import EX_CONFIG, EX_USAGE, UserError
from streams.source import KafkaSettings

SECRET = "hunter2-is-no-password"
PASSWORD = "TRIPLETD_STREAM__KAFKA__SASL_PASSWORD"
BROKER = '[stream]\naddress = "kafka://host:9093/t"\n'
SASL = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "SCRAM-SHA-512"\nsasl_username = "learner"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "tripletd.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path | None, overrides: dict[str, Any] | None = None, **environ: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(path, overrides, environ)
    assert caught.value.code == EX_CONFIG
    assert SECRET not in str(caught.value)
    return str(caught.value)


def settings(config: Config) -> KafkaSettings:
    address = config.stream.to_address()
    assert address.kafka is not None
    return address.kafka


def test_every_key_reaches_the_address(tmp_path: Path) -> None:
    keys = (
        'ssl_cafile = "ca.pem"\nssl_certfile = "/etc/own.pem"\nssl_keyfile = "keys/own.key"\n'
        'ssl_key_password = "open"\nssl_check_hostname = false\ntimeout_s = 9\nclient_id = "shop"\n'
    )
    path = write(tmp_path, f"{BROKER}[stream.kafka]\n{SASL}{keys}")
    config = load_config(path, {}, {PASSWORD: SECRET})
    assert settings(config) == KafkaSettings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="learner",
        sasl_password=SECRET,
        ssl_cafile=f"{tmp_path}/ca.pem",
        ssl_certfile="/etc/own.pem",
        ssl_keyfile=f"{tmp_path}/keys/own.key",
        ssl_key_password="open",
        ssl_check_hostname=False,
        timeout_s=9.0,
        client_id="shop",
    )
    address = config.stream.to_address()
    assert str(address) == "kafka://host:9093/t"
    assert address.dead.kafka == address.holdout.kafka == address.kafka


def test_what_is_left_out_is_as_the_settings_have_it() -> None:
    assert settings(load_config(None, {"stream.address": "kafka://host"}, {})) == KafkaSettings()


def test_a_log_has_no_broker_settings() -> None:
    assert load_config(None, {}, {PASSWORD: SECRET}).stream.to_address().kafka is None


def test_files_given_on_the_command_line_are_relative_to_where_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    path = write(tmp_path, f'{BROKER}[stream.kafka]\nsecurity_protocol = "SSL"\nssl_cafile = "a.pem"\n')
    monkeypatch.chdir(tmp_path / "here")
    typed = load_config(path, {"stream.kafka.ssl_cafile": "b.pem"}, {})
    assert settings(load_config(path, {}, {})).ssl_cafile == f"{tmp_path}/a.pem"
    assert settings(typed).ssl_cafile == f"{tmp_path}/here/b.pem"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_password_from_a_file_is_its_line(tmp_path: Path, end: str) -> None:
    secret = tmp_path / "password"
    secret.write_bytes(f" {SECRET} {end}".encode())
    path = write(tmp_path, f"{BROKER}[stream.kafka]\n{SASL}")
    config = load_config(path, {}, {f"{PASSWORD}_FILE": str(secret)})
    assert settings(config).sasl_password == f" {SECRET} "
    assert config.origin_of("stream.kafka.sasl_password") == "env"


def test_a_secret_file_that_is_not_there_is_not_named(tmp_path: Path) -> None:
    path = write(tmp_path, f"{BROKER}[stream.kafka]\n{SASL}")
    told = refused(path, **{f"{PASSWORD}_FILE": SECRET})  # the password where its file's path belongs
    assert f"environment {PASSWORD}_FILE" in told
    (tmp_path / "empty").write_text("\n")
    assert "empty" in refused(path, **{f"{PASSWORD}_FILE": str(tmp_path / "empty")})
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "cannot be read" in refused(path, **{f"{PASSWORD}_FILE": str(tmp_path / "binary")})
    assert "both set" in refused(path, **{f"{PASSWORD}_FILE": "x", PASSWORD: SECRET})


def test_only_secrets_come_from_files() -> None:
    told = refused(None, TRIPLETD_STREAM__KAFKA__SASL_USERNAME_FILE="x")
    assert "unknown key; did you mean sasl_username?" in told


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('security_protocol = "SASL_SSL"', "needs sasl_mechanism"),
        ('security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"', "needs sasl_username and sasl_password"),
        (SASL, "SCRAM-SHA-512 needs sasl_password"),
        ('sasl_mechanism = "PLAIN"', "sasl_mechanism without SASL; set security_protocol to SASL_SSL or"),
        (f'sasl_password = "{SECRET}"', "sasl_password without SASL"),
        ('security_protocol = "SSL"\nsasl_username = "me"', "set security_protocol to SASL_SSL"),
        ('ssl_cafile = "ca.pem"', "ssl_cafile with PLAINTEXT, which encrypts nothing"),
        (f'ssl_key_password = "{SECRET}"', "ssl_key_password with PLAINTEXT"),
        ('security_protocol = "SSL"\nssl_keyfile = "k.pem"', "ssl_keyfile without ssl_certfile"),
        (f'security_protocol = "SSL"\nssl_key_password = "{SECRET}"', "without ssl_keyfile"),
        ('sasl_mechanism = "GSSAPI"', 'allowed: "", "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512"'),
        ('client = "librdkafka"', 'allowed: "kafka-python" or "confluent"'),
        ("timeout_s = 0", "expected at least 0.5"),
        ("timeout_s = nan", "timeout_s: found nan"),
        (f'sasl_pasword = "{SECRET}"', "unknown key; did you mean sasl_password?"),
        ("sasl_password = 12345678", "expected a text in quotes"),
        (f'sasl_password = ["{SECRET}"]', "expected a text in quotes"),
        (f'sasl_password = "{SECRET}\\u0000"', "NUL"),
        ('client_id = ""', "must not be empty"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, keys: str, told: str) -> None:
    path = write(tmp_path, f"{BROKER}[stream.kafka]\n{keys}\n")
    message = refused(path)
    assert told in message
    assert "12345678" not in message
    assert f"{path}: stream.kafka" in message


def test_confluent_has_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, f'{BROKER}[stream.kafka]\nclient = "confluent"\n')
    monkeypatch.setattr(kafka_section, "find_spec", lambda name: None)
    assert 'pip install "tripletd[confluent]"' in refused(path)
    monkeypatch.setattr(kafka_section, "find_spec", find_spec)
    if find_spec("confluent_kafka"):
        assert settings(load_config(path, {}, {})).client == "confluent"


def test_broker_settings_beside_a_log_are_refused_unless_the_log_was_typed(tmp_path: Path) -> None:
    path = write(tmp_path, '[stream.kafka]\nclient_id = "shop"\n')
    assert "stream.kafka.client_id: of no use with stream.address log:" in refused(path)
    path = write(tmp_path, f'{BROKER}[stream.kafka]\nclient_id = "shop"\n')
    assert load_config(path, {"stream.address": "log:c.log"}, {}).stream.to_address().kafka is None
    untouched = write(tmp_path, '[stream.kafka]\nclient_id = "tripletd"\n')
    assert load_config(untouched, {}, {}).stream.kafka.client_id == "tripletd"


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    told = refused(None, {"stream.address": f"kafka://me:{SECRET}@host/t"})
    assert "give them in [stream.kafka]" in told


def test_topics_that_go_with_another_are_refused() -> None:
    for ending in ("dead", "holdout"):
        assert f"leave out .{ending}" in refused(None, {"stream.address": f"kafka://a.dead:1,b/t.{ending}"})
    assert load_config(None, {"stream.address": "kafka://a.dead/t"}, {}).stream.to_address().topic == "t"


def test_a_secret_on_the_command_line_is_refused() -> None:
    for name in ("sasl_password", "ssl_key_password"):
        with pytest.raises(UserError) as caught:
            parse_setting(f"stream.kafka.{name}={SECRET}")
        assert caught.value.code == EX_USAGE
        assert f"TRIPLETD_STREAM__KAFKA__{name.upper()}_FILE" in str(caught.value)
        assert SECRET not in str(caught.value)
    with pytest.raises(UserError) as caught:
        parse_setting(f"sasl_password={SECRET}")  # and its section forgotten
    assert SECRET not in str(caught.value)


def test_no_command_shows_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    monkeypatch.setenv("COLUMNS", "200")
    quick = "timeout_s = 0.5\n"
    path = write(tmp_path, BROKER.replace("host:9093", "127.0.0.1:1") + f"[stream.kafka]\n{SASL}{quick}")
    path.write_text(path.read_text() + '[space.views.x]\ndim = 3\nmap = "unit"\n')
    clicks = tmp_path / "clicks.jsonl"
    clicks.write_text('{"id": "i", "ts": 1, "q": {"id": "q"}, "shown": [{"id": "a"}], "clicked": [0]}\n')
    for words in (
        ("check",),
        ("check", "--json"),
        ("status",),
        ("status", "--json"),
        ("topics", "describe"),
        ("topics", "create", "--json"),
        ("--debug", "topics", "create"),
        ("feed", str(clicks)),
    ):
        main([*words, "--config", str(path)])
        told = capsys.readouterr()
        assert "127.0.0.1:1" in told.out + told.err, words
        assert SECRET not in told.out + told.err, words
        if words == ("check", "--json"):
            shown = json.loads(told.out)["config"]["stream"]["kafka"]
            assert (shown["sasl_password"], shown["sasl_username"]) == ("**********", "learner")


def test_a_crash_file_holds_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = write(tmp_path, f"{BROKER}[stream.kafka]\n{SASL}")

    def broken(config: Config) -> None:
        raise AssertionError(f"{config.stream!r} {config.stream.to_address()!r} {config.values()}")

    monkeypatch.setattr("daemon.topics.topics.topics_of", broken)
    assert main(["topics", "describe", "--config", str(path)]) == 70
    (crash,) = tmp_path.glob("tripletd-crash-*")
    text = crash.read_text() + capsys.readouterr().err
    assert "sasl_username" in text
    assert SECRET not in text


def test_a_slow_broker_must_not_be_taken_for_a_stuck_client() -> None:
    broker = {"stream.address": "kafka://h/t", "stream.kafka.timeout_s": 20.0}
    with pytest.raises(UserError, match="stuck_after of at least 120s"):
        load_config(None, broker, {})
    assert load_config(None, {**broker, "stream.stuck_after": "2m"}, {}).stream.stuck_after == 120
    assert load_config(None, {"stream.kafka.timeout_s": 20.0}, {}).stream.stuck_after == 60
