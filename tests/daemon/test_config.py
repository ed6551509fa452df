"""The configuration: layers, origins, units, paths, and one readable line for each mistake."""

from __future__ import annotations

import contextlib
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import learners.kernels.checks
import learners.keyed
from daemon.config import SECTIONS, ViewKeys, load_config, parse_duration, parse_setting, parse_size, values
from daemon.config.learners import LEARNERS, RaceKeys
from daemon.config.load import flatten, nest
from daemon.config.schema import CatalogColumns, FollowConfig, RatingsConfig, WritesConfig
from daemon.config.services import KafkaConfig, RegistryConfig
from daemon.exits import EX_CONFIG, EX_USAGE, UserError
from streams import limits
from streams.event import SpaceSpec, ViewSpec
from tests.docs.configuration_page import reference

TEMPLATE = Path(__file__).parents[2] / "deploy" / "tripletd.toml"
NO_ENV: dict[str, str] = {}


def write(folder: Path, text: str) -> Path:
    path = folder / "tripletd.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str, environ: dict[str, str] = NO_ENV) -> str:
    with pytest.raises(UserError) as caught:
        load_config(write(folder, text), environ=environ)
    assert caught.value.code == EX_CONFIG
    return caught.value.message


@pytest.mark.parametrize("flat", [{("a", "b"): 2, ("a",): 1}, {("a",): 1, ("a", "b"): 2}])
def test_a_table_wins_over_a_plain_value_of_its_name(flat: dict[tuple[str, ...], Any]) -> None:
    assert nest(flat) == {"a": {"b": 2}}


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = write(tmp_path, "[learner]\nC = 0.2\npsd_every = 5\n[feed]\nseed = 1\n")
    environ = {"TRIPLETD_LEARNER__C": "0.3", "TRIPLETD_FEED__SEED": "2"}
    config = load_config(path, {"learner.C": 0.4}, environ)
    assert (config.learner.C, config.feed.seed, config.learner.psd_every) == (0.4, 2, 5)
    assert config.learner.symmetric == "off"
    keys = ("learner.C", "feed.seed", "learner.psd_every", "learner.symmetric")
    assert [config.origin_of(key) for key in keys] == ["cli", "env", "file", "default"]


def test_environment_is_typed_and_reaches_views() -> None:
    environ = {
        "TRIPLETD_SPACE__VIEWS__X__DIM": "7",
        "TRIPLETD_SPACE__VIEWS__X__KIND": "sparse",
        "TRIPLETD_VALIDATE__MIN_DELTA": "1e-3",
        "TRIPLETD_CONFIG": "elsewhere.toml",
    }
    config = load_config(None, environ=environ)
    assert config.space_spec() == SpaceSpec("default", (ViewSpec("x", "sparse", 7),))
    assert config.validate.min_delta == 0.001


def test_a_list_is_written_with_commas_where_there_is_no_toml() -> None:
    config = load_config(None, dict([parse_setting("serve.aliases=latest, best")]), NO_ENV)
    assert config.serve.aliases == ["latest", "best"]
    environ = {"TRIPLETD_SERVE__ALIASES": "latest"}
    assert load_config(None, environ=environ).serve.aliases == ["latest"]
    environ = {"TRIPLETD_HTTP__HOSTS": "Shop.example.org., *.example.org,"}
    assert load_config(None, environ=environ).http.hosts == ["shop.example.org", "*.example.org"]
    assert load_config(None, environ={"TRIPLETD_HTTP__HOSTS": ""}).http.hosts == []


def test_the_token_is_read_from_a_file_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("correct-horse-battery\n")
    config = load_config(None, environ={"TRIPLETD_HTTP__TOKEN_FILE": str(secret)})
    assert config.http.token.get_secret_value() == "correct-horse-battery"
    assert "correct-horse" not in repr(config) + str(config.values())
    assert set(config.values()["http"]["token"]) == {"*"}
    with pytest.raises(UserError, match="command line") as caught:
        parse_setting("http.token=correct-horse-battery")
    assert "TRIPLETD_HTTP__TOKEN_FILE" in caught.value.remedy


TOKEN = '[http]\ntoken = "correct-horse-battery"\n'


def test_a_file_with_secrets_that_everybody_can_read_is_named(tmp_path: Path) -> None:
    broker = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "u",
        "sasl_password": "p",
    }
    kafka = "[stream.kafka]\n" + "".join(f'{key} = "{value}"\n' for key, value in broker.items())
    file = write(tmp_path, TOKEN + '[stream]\naddress = "kafka://a:9092/clicks"\n' + kafka)
    for mode, exposed in ((0o600, 0), (0o640, 0), (0o644, 1), (0o604, 1), (0o660, 0)):
        file.chmod(mode)
        found = load_config(file, environ=NO_ENV).exposed
        assert len(found) == exposed, oct(mode)
        for one in found:
            assert one.text.startswith(
                f"{file} holds http.token and stream.kafka.sasl_password, and every user"
            )
            assert f"(mode {mode:04o})" in one.text
            assert one.remedy == f"chmod o-rwx {file}"
            assert "correct-horse" not in repr(one)


def test_a_file_without_secrets_may_be_read_by_everybody(tmp_path: Path) -> None:
    file = write(tmp_path, '[http]\ntoken = ""\nserve_port = 0\n')
    file.chmod(0o644)
    assert load_config(file, environ=NO_ENV).exposed == ()


def test_the_file_of_a_token_and_of_a_key_are_looked_at_too(tmp_path: Path) -> None:
    file, token, key = write(tmp_path, ""), tmp_path / "token", tmp_path / "key.pem"
    token.write_text("correct-horse-battery\n")
    key.write_text("a key\n")
    settings = {
        "stream.address": "kafka://a:9092/clicks",
        "stream.kafka.security_protocol": "SSL",
        "stream.kafka.ssl_certfile": str(key),
        "stream.kafka.ssl_keyfile": str(key),
    }
    for mode, exposed in ((0o600, []), (0o444, ["http.token", "a private key"])):
        token.chmod(mode)
        key.chmod(mode)
        config = load_config(file, settings, {"TRIPLETD_HTTP__TOKEN_FILE": str(token)})
        assert [held for one in config.exposed for held in one.keys] == exposed


def test_nested_and_dotted_overrides_mean_the_same() -> None:
    nested = load_config(None, {"stream": {"partitions": 3}}, NO_ENV)
    dotted = load_config(None, {"stream.partitions": 3}, NO_ENV)
    assert nested.stream == dotted.stream
    assert nested.origin_of("stream.partitions") == "cli"


def test_views_keep_the_order_of_the_file(tmp_path: Path) -> None:
    text = "[space.views.zeta]\ndim = 2\n[space.views.alpha]\ndim = 3\n"
    spec = load_config(write(tmp_path, text), environ=NO_ENV).space_spec()
    assert [view.name for view in spec.views] == ["zeta", "alpha"]


def test_map_default_depends_on_the_kind(tmp_path: Path) -> None:
    text = '[space.views.a]\ndim = 2\n[space.views.b]\ndim = 2\nkind = "sparse"\n'
    views = load_config(write(tmp_path, text), environ=NO_ENV).space.views
    assert (views["a"].map, views["b"].map) == ("precondition", "unit")


def test_a_space_without_views_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no view") as caught:
        load_config(write(tmp_path, ""), environ=NO_ENV).space_spec()
    assert "[space.views.x]" in caught.value.remedy


def test_where_there_is_no_file_that_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"no tripletd.toml in {tmp_path}") as caught:
        load_config(None, environ=NO_ENV).space_spec()
    assert all(one in caught.value.remedy for one in ("--config", "cd", "tripletd init"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[learner]\nc = 1\n", "learner.c: unknown key; did you mean C?"),
        ("[strem]\n", "strem: unknown section; did you mean stream?"),
        ("[zzz]\n", "zzz: unknown section; allowed: stream, space"),
        ("partitions = 3\n", "partitions: unknown key"),
        ('[learner]\nC = "big"\n', 'learner.C: found "big"; expected a number'),
        ("[learner]\nC = nan\n", "learner.C: found nan"),
        ("[learner]\nC = 0\n", "learner.C: found 0; expected above 0"),
        ("[checkpoints]\nkeep = true\n", "checkpoints.keep: found true; expected a whole number"),
        ("[checkpoints]\nkeep = 2.5\n", "checkpoints.keep: found 2.5; expected a whole number"),
        ('[checkpoints]\nevery = "30"\n', 'checkpoints.every: found "30"; expected a duration such as'),
        ('[checkpoints]\nevery = "0s"\n', 'every = "0s" without every_events writes no version'),
        ('[steps]\nmax_rate = "0B"\n', 'steps.max_rate: found "0B"; expected a size above zero'),
        ('[serve]\nlook_every = "0s"\n', 'found "0s"; expected a duration above zero'),
        ("[serve]\nlook_every = 3\n", "found 3; expected a duration such as"),
        ('[stream]\nmax_record_bytes = "1 parsec"\n', 'found "1 parsec"; expected a size such as'),
        ('[stream]\nmax_record_bytes = "2MiB"\n', 'found "2MiB"; expected at most 1MiB'),
        ('[stream]\naddress = "log:a.log#t.dead"\n', "names a topic that goes with another one"),
        ('[stream]\naddress = "log:a.log#t.holdout"\n', "names a topic that goes with another one"),
        (f"[space.views.{'v' * 513}]\ndim = 3\n", "expected 1 to 512 bytes"),
        ('[space.views.""]\ndim = 3\n', "expected 1 to 512 bytes"),
        ("".join(f"[space.views.v{n}]\ndim = 3\n" for n in range(33)), "an event carries at most 32"),
        ('[space.views.x]\ndim = 3\nkind = "sparse"\ncomponents = 2\n', "components belongs to whiten"),
        ("[space.views.x]\ndim = 3\nmap = []\n", "map names none"),
        ('[space.views.x]\ndim = 3\nmap = ["whiten", "tfidf"]\n', "needs a sparse view"),
        (
            '[space.views.x]\ndim = 3\nkernels = [{map = "rff", levels = 3}]\n',
            'levels is no key of map "rff"',
        ),
        (
            '[space.views.x]\ndim = 3\nkernels = [{map = "rff", kernel = "intersection"}]\n',
            'map "rff" has the kernels gaussian and exponential',
        ),
        (
            '[space.views.x]\ndim = 3\nkind = "sparse"\nkernels = [{map = "cosine"}]\n',
            'map "cosine" needs a dense view',
        ),
        (
            '[space.views.x]\ndim = 3\nkind = "sparse"\nkernels = [{map = "pcalap"}]\n',
            'map "pcalap" needs a dense view',
        ),
        (
            '[space.views.x]\ndim = 3\nkind = "sparse"\nkernels = [{map = "addkpca", kernel = "gaussian"}]\n',
            "for sparse use intersection",
        ),
        (
            '[space.views.x]\ndim = 3\nkernels = [{map = "rplap", components = 3}]\n',
            'components is no key of map "rplap"',
        ),
        ('[learner]\nalgorithm = "omks-maps"\ncombine = "given"\n', '"given" needs weights, one number per'),
        ('[learner]\nalgorithm = "omks-maps"\nweights = [1.0]\n', 'rule "given", not to "share"'),
        ('[feed]\nrule = "skip"\n', 'feed.rule: found "skip"; allowed: "skip_above", "last_click"'),
        ("[feed]\nholdout_share = 1.0\n", "feed.holdout_share: found 1.0; expected below 1"),
        ("[serving]\npower = 0.4\n", "serving.power: found 0.4; expected at least 0.5"),
        ("[serving]\npower = 4\n", "serving.power: found 4; expected at most 3"),
        ("[http]\nlearn_port = 70000\n", "http.learn_port: found 70000; expected at most 65535"),
        ('[validate]\njudgments = "file.tsv"\n', 'expected "qrels:PATH"'),
        ("[space.views.x]\n", "space.views.x.dim: this key is required"),
        ("[space.views.x]\ndims = 3\ndim = 3\n", "space.views.x.dims: unknown key; did you mean dim?"),
        ('[space.views.x]\ndim = 3\nmap = "tfidf"\n', 'space.views.x: map "tfidf" needs a sparse view'),
        ("stream = 3\n", "stream: found 3; expected a table"),
        ('[stream]\nretention = "999999999999999999999d"\n', "at most 100,000 days"),
        (f'[stream]\nretention_bytes = "{"9" * 400}B"\n', "at most 1,000,000 TiB"),
        ("[http]\nlearn_port = 9102\n", "http: learn_port and validate_port are both 9102"),
        ("[http]\nserve_port = 9101\n", "http: learn_port and serve_port are both 9101"),
        ("[http]\nup_port = 9101\n", "http: learn_port and up_port are both 9101"),
        ('[http]\ntoken = "hunter2"\n', "http.token: expected at least 16 printable ASCII characters"),
        ('[http]\ntoken = "sixteen and more characters"\n', "http.token: expected at least 16"),
        ('[http]\nhosts = ["shop.example.org:9103"]\n', "http.hosts: found"),
        ('[http]\nhosts = ["http://shop"]\n', "without a port"),
        ('[http]\nhosts = ["*shop"]\n', 'or "*.example.org"'),
        ('[steps]\nevery = "5ms"\n', 'steps.every: found "5ms"; expected a duration from 10ms to 10s'),
        ('[stream]\naddress = "log:a.log#t.steps"\n', "names a topic that goes with another one"),
        ("[serve]\naliases = []\n", "serve.aliases: found []; expected different names"),
        ('[serve]\naliases = ["../x"]\n', "expected different names"),
        ('[serve]\naliases = ["a", "b", "c", "d", "e"]\n', "at most 4 names"),
        ('[http]\nhost = "a\\u0000b"\n', "http.host: found"),
        ('[checkpoints]\npath = "a\\u0000b"\n', "holds a NUL character; remove it"),
        (f"a = {'[' * 5000}{']' * 5000}\n", "nested too deeply"),
        (f"[feed]\nseed = {'9' * 5000}\n", "a number has too many digits"),
    ],
)
def test_each_mistake_names_file_key_found_and_allowed(tmp_path: Path, text: str, expected: str) -> None:
    message = complaint(tmp_path, text)
    assert message.startswith(f"{tmp_path / 'tripletd.toml'}: ")
    assert "hunter2" not in message
    assert expected in message


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    lines = complaint(tmp_path, '[learner]\nC = "big"\nCs = 3\n[log]\nlevel = "loud"\n').splitlines()
    assert len(lines) == 3


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    message = complaint(tmp_path, "", {"TRIPLETD_HTTP__LEARN_PORT": "abc"})
    assert message.startswith('environment TRIPLETD_HTTP__LEARN_PORT: http.learn_port: found "abc"')


def test_an_unknown_variable_is_a_mistake_too(tmp_path: Path) -> None:
    message = complaint(tmp_path, "", {"TRIPLETD_FEED__SED": "1"})
    assert "did you mean seed?" in message


def test_an_unknown_section_names_where_it_was_given(tmp_path: Path) -> None:
    assert complaint(tmp_path, "", {"TRIPLETD_LEARNR__C": "1"}).startswith("environment TRIPLETD_LEARNR__C: ")
    with pytest.raises(UserError, match="command line: learnr: unknown section"):
        load_config(None, {"learnr.C": 1}, NO_ENV)


@pytest.mark.parametrize("setting", ["space.views=3", "space.views.x=3", "space.views.x.dim.y=3"])
def test_a_value_where_a_table_stands_is_refused_not_ignored(tmp_path: Path, setting: str) -> None:
    file = write(tmp_path, "[space.views.x]\ndim = 2\n")
    with pytest.raises(UserError, match=r"command line: space\.views") as caught:
        load_config(file, dict([parse_setting(setting)]), NO_ENV)
    assert str(file) in caught.value.message


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_bytes(b"\xef\xbb\xbf[learner]\r\nC = 0.5\r\n")
    assert load_config(file, environ=NO_ENV).learner.C == 0.5


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    assert "line 2" in complaint(tmp_path, "[learner]\nC = = 3\n")


def test_missing_folder_and_binary_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_config(tmp_path / "none.toml", environ=NO_ENV)
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path, environ=NO_ENV)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        load_config(tmp_path / "binary", environ=NO_ENV)


def test_paths_of_the_file_are_relative_to_it_and_typed_ones_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "etc", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    text = '[stream]\naddress = "log:../d/c.log#t"\n[catalog]\npath = "cat.jsonl"\n'
    text += '[validate]\njudgments = "labels:l.tsv"\n'
    path = write(home, text)
    config = load_config(path, {"catalog.path": "mine.jsonl"}, NO_ENV)
    assert config.stream.address == f"log:{tmp_path}/d/c.log#t"
    assert config.validate.judgments == f"labels:{home}/l.tsv"
    assert config.checkpoints.path == f"{home}/checkpoints"
    assert config.catalog.path == f"{here}/mine.jsonl"


def test_only_log_addresses_hold_a_path() -> None:
    config = load_config(None, {"stream.address": "memory:clicks#t"}, NO_ENV)
    assert config.stream.address == "memory:clicks#t"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("stream.address", "log:a/../b#t", "log:{}/b#t"),
        ("stream.address", "kafka://h:1/t", "kafka://h:1/t"),
        ("catalog.path", "postgres://u@h/d#t", "postgres://u@h/d#t"),
        ("catalog.path", "s3://bucket/o.parquet", "s3://bucket/o.parquet"),
        ("catalog.path", "log:a#t", "log:{}/a#t"),
        ("catalog.ids", "gs://bucket/ids.txt", "gs://bucket/ids.txt"),
        ("catalog.ids", "ids.txt", "{}/ids.txt"),
        ("serve.writes.folder", "raw", "{}/raw"),
        ("serve.ratings.ids", "x:y", "{}/x:y"),
        ("checkpoints.path", "s3://bucket/here", "s3://bucket/here"),
        ("checkpoints.path", "there", "{}/there"),
        ("feed.follow.sources", ["logs/*.jsonl", "log:a#t"], ["{}/logs/*.jsonl", "log:{}/a#t"]),
        ("feed.follow.sources", ["memory:m#t"], ["memory:m#t"]),
        ("feed.follow.mapping", "http", "http"),
        ("feed.follow.mapping", "mine.toml", "{}/mine.toml"),
        ("feed.follow.registry.cafile", "", ""),
        ("validate.judgments", "qrels:a:b", "qrels:{}/a:b"),
        ("stream.kafka.ssl_cafile", "/etc/ca.pem", "/etc/ca.pem"),
    ],
)
def test_the_part_of_a_setting_that_is_a_path_is_made_absolute(
    key: str, value: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = {"stream.address": "kafka://h:1/t", "stream.kafka.security_protocol": "SSL"}
    found: Any = load_config(None, {**(broker if "kafka" in key else {}), key: value}, NO_ENV)
    for name in key.split("."):
        found = getattr(found, name)
    is_list = isinstance(expected, list)
    assert found == ([one.format(tmp_path) for one in expected] if is_list else expected.format(tmp_path))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1.5s", 1.5), ("2w", 1209600)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "-3s", "3 s", "1h30", "3x", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"), [("64MiB", 64 << 20), ("1kB", 1000), ("1.5 GiB", 3 << 29), ("7B", 7)]
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "64", "MiB", "-1MiB", "1mib", "1 M iB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@given(st.text(max_size=20))
def test_units_never_fail_otherwise(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


def test_durations_and_sizes_are_numbers_where_they_are_used() -> None:
    overrides = {"stream.retention": "7d", "stream.retention_bytes": "2GiB", "checkpoints.every": "5s"}
    config = load_config(None, overrides, NO_ENV)
    assert (config.stream.retention, config.stream.retention_bytes) == (604_800.0, 2 << 30)
    assert (config.checkpoints.every, config.stream.max_record_bytes) == (5.0, 1 << 20)
    assert load_config(None, environ=NO_ENV).stream.retention is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [("30s", "30s"), ("1h30m", "90m"), ("60s", "1m"), ("1.5s", "1500ms"), ("2w", "14d"), ("0s", "0s")],
)
def test_a_duration_is_shown_in_the_largest_unit_that_needs_no_fraction(text: str, shown: str) -> None:
    assert values.duration_text(parse_duration(text)) == shown


@pytest.mark.parametrize("text", ["64MiB", "1kB", "1536MiB", "7B", "64MB", "1GiB"])
def test_a_size_is_shown_as_it_is_written(text: str) -> None:
    assert values.size_text(parse_size(text)) == text


@given(st.integers(0, int(values.LONGEST_SECONDS) * 1000), st.integers(0, values.MOST_BYTES))
def test_what_is_shown_of_a_number_is_read_as_that_number(ms: int, count: int) -> None:
    assert parse_duration(values.duration_text(ms / 1000)) == pytest.approx(ms / 1000, rel=1e-14)
    assert parse_size(values.size_text(count)) == pytest.approx(count, rel=1e-15)


def test_versions_may_be_cut_by_events_alone() -> None:
    config = load_config(None, {"checkpoints.every": "0s", "checkpoints.every_events": 500}, NO_ENV)
    assert (config.checkpoints.every, config.checkpoints.every_events) == (0.0, 500)


def test_a_key_under_its_former_name_is_taken_with_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, '[serve]\npatience = "3s"\n')
    config = load_config(path, environ=NO_ENV)
    assert (config.serve.request_timeout, config.origin_of("serve.request_timeout")) == (3.0, "file")
    assert config.notes == (f"{path}: serve.patience: is called serve.request_timeout now",)
    config = load_config(path, environ={"TRIPLETD_SERVE__REQUEST_TIMEOUT": "5s"})
    assert config.serve.request_timeout == 5.0
    assert load_config(None, environ=NO_ENV).notes == ()


def test_set_arguments() -> None:
    assert parse_setting("learner.C=0.5") == ("learner.C", 0.5)
    assert parse_setting("feed.rule=last_click") == ("feed.rule", "last_click")
    for text in ("learner.C", "C=3", "=3"):
        with pytest.raises(UserError) as caught:
            parse_setting(text)
        assert caught.value.code == EX_USAGE


def test_the_template_is_complete_commented_and_true() -> None:
    stated = dict(flatten(tomllib.loads(TEMPLATE.read_text(encoding="utf-8"))))
    views = {("space", "views", "x", name) for name in ViewKeys.model_fields}
    kafka = {("stream", "kafka", name) for name in KafkaConfig.model_fields}
    columns = {("catalog", "columns", name) for name in CatalogColumns.model_fields}
    writes = {("serve", "writes", name) for name in WritesConfig.model_fields}
    writes |= {("serve", "ratings", name) for name in RatingsConfig.model_fields}
    follow = {("feed", "follow", name) for name in FollowConfig.model_fields if name != "registry"}
    follow |= {("feed", "follow", "registry", name) for name in RegistryConfig.model_fields}
    sections = {**SECTIONS, "learner": LEARNERS["oasis-softmax"]}  # of a space with one view
    known = {(s, name) for s, model in sections.items() for name in model.model_fields}
    tables = {("space", "views"), ("stream", "kafka"), ("catalog", "columns"), ("serve", "writes")}
    tables |= {("feed", "follow"), ("serve", "ratings")}
    tables |= {("learner", "race")}
    race = {("learner", "race", name) for name in RaceKeys.model_fields}
    assert set(stated) == (known - tables) | views | kafka | columns | writes | follow | race
    example = load_config(None, {"space": {"views": {"x": {"dim": 300}}}}, NO_ENV)
    assert nested(stated) == {**example.values(), **{s: plain(s) for s in ("stream", "checkpoints")}}


def nested(flat: dict[tuple[str, ...], object]) -> dict[str, object]:
    from daemon.config.load import nest

    return nest(flat)


def plain(section: str) -> dict[str, object]:
    """Defaults before their paths are made absolute."""
    return SECTIONS[section]().model_dump(mode="json")


def test_the_reference_is_that_of_the_schema_and_has_every_key() -> None:
    page = (TEMPLATE.parents[1] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "run `python -m tests.docs.configuration_page > docs/configuration.md`"
    known = {
        name for model in (*SECTIONS.values(), *LEARNERS.values(), KafkaConfig) for name in model.model_fields
    }
    assert known - {"kafka", "views", "columns", "writes", "ratings", "follow", "race"} <= set(
        re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    )


def test_every_key_of_the_template_has_a_comment_above_it() -> None:
    lines = TEMPLATE.read_text(encoding="utf-8").splitlines()
    bare = [
        line
        for before, line in pairwise(lines)
        if re.match(r"\w+ = ", line) and not before.startswith("#") and not re.match(r"(\w+) = ", before)
    ]
    assert bare == []


def test_the_template_loads_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, TEMPLATE.read_text(encoding="utf-8"))
    assert load_config(path, environ=NO_ENV).space.views["x"].dim == 300


def test_the_limits_of_learners_are_those_of_the_wire() -> None:
    assert learners.keyed.MAX_KEY_BYTES == limits.MAX_KEY_BYTES
    assert learners.kernels.checks.MAX_MAGNITUDE == limits.MAX_MAGNITUDE


def test_32_views_with_long_names_are_taken(tmp_path: Path) -> None:
    text = "".join(f"[space.views.{'v' * 500}{n}]\ndim = 3\n" for n in range(32))
    assert len(load_config(write(tmp_path, text), environ=NO_ENV).space.views) == 32


def test_a_role_may_have_the_usual_port_of_up_as_before_there_was_one(tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text("[http]\nserve_port = 9104\n")
    http = load_config(file, environ={}).http
    assert (http.serve_port, http.up_port) == (9104, 0)


def test_a_text_model_lies_beside_the_configuration_and_names_itself(tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text('[embeddings]\nfolder = "models/tiny"\n')
    given = load_config(file, environ={}).embeddings
    assert (given.folder, given.names) == (str(tmp_path / "models" / "tiny"), {"tiny": "tiny"})
    file.write_text('[embeddings]\nfolder = "models/tiny"\nmodels = { shop = "tiny" }\n')
    assert load_config(file, environ={}).embeddings.names == {"shop": "tiny"}
    assert load_config(None, environ={}).embeddings.names == {}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ('upstream = "http://127.0.0.1:1/v1"', "upstream and folder are both set"),
        ('models.shop = "large"', "shop names large, and the folder tiny"),
    ],
)
def test_a_text_model_that_cannot_be_meant(tmp_path: Path, more: str, text: str) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text(f'[embeddings]\nfolder = "tiny"\n{more}\n')
    with pytest.raises(UserError, match=text):
        load_config(file, environ={})


def test_the_secret_of_a_registry_comes_from_a_file_and_its_cafile_is_beside_the_configuration(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("t0ken\n")
    file = tmp_path / "tripletd.toml"
    file.write_text('[feed.follow.registry]\nurl = "https://registry:8081/"\ncafile = "ca.pem"\n')
    environ = {"TRIPLETD_FEED__FOLLOW__REGISTRY__SECRET_FILE": str(tmp_path / "secret")}
    settings = load_config(file, {}, environ).feed.follow.registry.to_settings()
    assert (settings.url, settings.secret) == ("https://registry:8081", "t0ken")
    assert settings.cafile == str(tmp_path / "ca.pem")
    assert "t0ken" not in str(load_config(file, {}, environ).values())


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('url = "ftp://registry"', "expected a URL"),
        ('url = "https://anna:secret@registry"', "secrets have keys of their own"),
        ('user = "anna"', "which url names"),
        ('url = "http://registry"\ncafile = "ca.pem"', "over https"),
    ],
)
def test_a_registry_that_cannot_be_meant(tmp_path: Path, said: str, text: str) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text(f"[feed.follow.registry]\n{said}\n")
    with pytest.raises(UserError) as caught:
        load_config(file, {}, {})
    assert caught.value.code == EX_CONFIG
    assert text in caught.value.message
