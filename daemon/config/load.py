"""Reading a configuration: file, then environment, then command line; the last one wins.

Relative paths are taken against the file's folder, not wherever the process was started. Every fault is one
readable line per key. A secret may come from a file that the environment names; files with secrets that
everybody can read are reported.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from daemon.config.faults import field_of, is_secret, model_at, section_problems, syntax_error, unknown_keys
from daemon.config.learners import all_keys, default_algorithm, learner_keys
from daemon.config.objects import remember
from daemon.config.schema import SECTIONS, Config, ExposedFile, SpaceConfig, ValueOrigin
from daemon.config.services import KafkaConfig
from daemon.config.values import PathIn, Section
from daemon.exits import EX_CONFIG, EX_USAGE, UserError

ENV_PREFIX = "TRIPLETD_"
FILE_SUFFIX = "_file"
"""A secret's variable with this ending holds the path of a file with the secret."""
MOST_SECRET = 65_536
"""Characters of a secret at most: a device or a log in the place of its file has no end."""
Flat = dict[tuple[str, ...], Any]


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. UserError naming file and line when it cannot be read."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file", "give the path of a tripletd.toml with --config") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})", "save the file as UTF-8") from None
    except OSError as error:
        remedy = "check the path and its permissions"
        raise UserError(f"{path}: cannot be read: {error.strerror}", remedy) from None
    except tomllib.TOMLDecodeError as error:
        problem = syntax_error(text, str(error))
        raise UserError(f"{path}: not valid TOML: {problem}", "correct the line named above") from None
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        remedy = "deploy/tripletd.toml shows what a configuration holds"
        raise UserError(f"{path}: {problem}", remedy) from None


def flatten(tree: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, leaf) of a nested mapping; an empty table is a leaf of its own."""
    for name, value in tree.items():
        path = (*prefix, name)
        if isinstance(value, Mapping) and value:
            yield from flatten(value, path)
        else:
            yield path, value


def nest(flat: Flat) -> dict[str, Any]:
    """The inverse of flatten; a table wins over a plain value of the same name."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        node = tree
        for name in path[:-1]:
            child = node.get(name)
            if not isinstance(child, dict):
                child = node[name] = {}
            node = child
        node.setdefault(path[-1], value)
    return tree


def env_layer(environ: Mapping[str, str]) -> Flat:
    """TRIPLETD_SECTION__KEY variables as typed leaves; a variable without "__" is not ours to judge.

    The secret of a key may also come from a file: TRIPLETD_SECTION__KEY_FILE holds its path.
    """
    layer: Flat = {}
    for name, path, secret, text in _variables(environ):
        plain = name[: -len(FILE_SUFFIX)]
        if secret is not None and plain in environ:
            raise UserError(f"environment {plain} and {name} are both set", "unset one of the two")
        layer[secret or path] = coerce(path, text) if secret is None else read_secret(name, text)
    return layer


def _variables(
    environ: Mapping[str, str],
) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...] | None, str]]:
    """(name, key, the secret whose file it names or None, text) of each variable that is ours."""
    for name, text in environ.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            path = _spelt(tuple(name[len(ENV_PREFIX) :].lower().split("__")))
            plain = (*path[:-1], path[-1].removesuffix(FILE_SUFFIX))
            yield name, path, plain if plain != path and is_secret(plain) else None, text


def _holding(
    layer: Flat, path: Path | None, environ: Mapping[str, str], config: Config
) -> dict[Path, list[str]]:
    holding: dict[Path, list[str]] = {}
    if path is not None:
        holding[path] = [".".join(key) for key, value in layer.items() if is_secret(key) and value]
    for _, _, secret, text in _variables(environ):
        if secret is not None:
            holding.setdefault(Path(text), []).append(".".join(secret))
    for key in (config.stream.kafka.ssl_keyfile, config.http.tls_key or config.http.tls_certificate):
        if key:
            holding.setdefault(Path(key), []).append("a private key")
    return holding


def exposed_files(holding: Mapping[Path, Sequence[str]]) -> tuple[ExposedFile, ...]:
    """Those of the files that every user of the host can read; `holding`: the secrets in each."""
    found = []
    for path, keys in holding.items():
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:  # gone or unreadable: opening it later reports that
            continue
        if keys and mode & stat.S_IROTH:
            found.append(ExposedFile(path, tuple(keys), mode))
    return tuple(found)


def read_secret(name: str, path: str) -> str:
    """The secret in a file named by an environment variable, without the line's end. UserError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_SECRET + 1)
        if len(text) > MOST_SECRET:
            raise ValueError
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a readable text file"
        # the path is not shown: it may be the secret itself, put where its file's path belongs
        message = f"environment {name}: the file it names cannot be read: {why}"
        raise UserError(message, "give the path of the secret's file") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise UserError(f"environment {name}: the file is empty", "write the secret into it, on one line")
    return secret


def coerce(path: tuple[str, ...], text: str) -> Any:
    """A value written as text (environment, --set) in its key's type; left as text when it does not fit, and
    where the key has a reader of texts of its own (durations, sizes, lists).
    """
    field = field_of(path)
    if field is None or any(isinstance(one, BeforeValidator) for one in field.metadata):
        return text
    try:
        annotation: Any = field.annotation
        return TypeAdapter[Any](annotation).validate_strings(text)
    except ValidationError:
        return text


def _spelt(path: tuple[str, ...]) -> tuple[str, ...]:
    """Environment names are upper-case: give back the key's own spelling (learner.C)."""
    model = model_at(path)
    if model is None:
        return path
    names = all_keys() if path[0] == "learner" else list(model.model_fields)
    spelling = {name.lower(): name for name in names}
    return (*path[:-1], spelling.get(path[-1], path[-1]))


RENAMED: Mapping[tuple[str, ...], tuple[str, ...]] = {("serve", "patience"): ("serve", "request_timeout")}
"""Keys under their former names, which are still taken, with a note."""


def resolve_paths(config: Config) -> Config:
    """The configuration with every path absolute.

    A path from the file or a default is relative to the file's folder; one from the environment or
    the command line to the working directory.
    """
    home = config.file.resolve().parent if config.file else Path.cwd()

    def resolved(table: Section, key: str) -> Section:
        update: dict[str, Any] = {}
        for name, field in type(table).model_fields.items():
            whole, value = f"{key}.{name}", getattr(table, name)
            if isinstance(value, Section):
                update[name] = resolved(value, whole)
            elif value and (path := next((one for one in field.metadata if isinstance(one, PathIn)), None)):
                base = Path.cwd() if config.origin_of(whole) in ("env", "cli") else home
                is_list = isinstance(value, list)
                update[name] = [path.of(one, base) for one in value] if is_list else path.of(value, base)
        return table.model_copy(update=update) if update else table

    sections: dict[str, Any] = {name: resolved(getattr(config, name), name) for name in SECTIONS}
    return replace(config, **sections)


def load_config(
    path: Path | None, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """The effective configuration.

    Args:
        path: a tripletd.toml; None starts from the defaults.
        overrides: command-line values, nested or dotted ("learner.C"); they win over everything.
        environ: environment to read TRIPLETD_SECTION__KEY from; the process's own when None.

    Relative paths of the file (and of defaults) are relative to the file's folder, those of the
    environment and the command line to the working directory.

    Raises:
        UserError: code 78, with a line for each thing wrong: file or origin, section.key, found, allowed.
    """
    environ = os.environ if environ is None else environ
    in_file = dict(flatten(read_toml(path))) if path else {}
    layers: list[tuple[ValueOrigin, Flat]] = [
        ("file", in_file),
        ("env", env_layer(environ)),
        ("cli", {tuple(".".join(key).split(".")): value for key, value in flatten(overrides or {})}),
    ]
    merged: Flat = {}
    origins: dict[str, ValueOrigin] = {}
    notes: list[str] = []
    for origin, layer in layers:
        for key, value in layer.items():
            now = RENAMED.get(key, key)
            if now != key:
                notes.append(f"{_place(key, {'.'.join(key): origin}, path)}: is called {'.'.join(now)} now")
            if now == key or now not in layer:  # the new name wins over the old one beside it
                merged[now] = value
                origins[".".join(now)] = origin
    _refuse_clashes(merged, origins, path)
    sections = _validated(nest(merged), origins, path)
    config = resolve_paths(Config(**sections, file=path, origins=origins, notes=tuple(notes)))  # type: ignore[arg-type]
    _refuse_unfit_kafka(config, origins, path)
    remember(config.checkpoints)
    return replace(config, exposed=exposed_files(_holding(in_file, path, environ, config)))


def parse_setting(text: str) -> tuple[str, Any]:
    """("section.key", typed value) of a `--set section.key=value` argument."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        message = f"--set {key}: not of the form section.key=value"
        raise UserError(message, "for example --set learner.C=0.05", EX_USAGE)
    path = tuple(key.strip().split("."))
    if is_secret(path):
        variable = ENV_PREFIX + "__".join(path).upper()
        remedy = f"set {variable}, or {variable}_FILE to the path of a file that holds it"
        raise UserError(f"--set {key}: a command line can be read by everybody here", remedy, EX_USAGE)
    return key.strip(), coerce(path, value.strip())


def _refuse_clashes(merged: Flat, origins: Mapping[str, ValueOrigin], path: Path | None) -> None:
    """UserError where one layer gives a table and another a plain value under the same name."""
    for key in merged:
        for above in (key[:length] for length in range(1, len(key))):
            if above in merged and not isinstance(merged[above], Mapping):
                places = f"{_place(above, origins, path)} is given a value, but {_place(key, origins, path)}"
                raise UserError(f"{places} needs a table there", "remove one of the two", EX_CONFIG)


def _refuse_unfit_kafka(config: Config, origins: Mapping[str, ValueOrigin], path: Path | None) -> None:
    """UserError where [stream.kafka] does not fit together, or stands beside addresses of no broker.

    A file for a broker may be tried with another address from the command line or the environment.
    """
    stream = config.stream
    others = config.catalog.path, config.serve.catalog, *config.feed.follow.sources
    if any(one.startswith("kafka:") for one in (stream.address, *others)):
        place = _place(("stream", "kafka"), origins, path)
        problems = [f"{place}: {sentence}" for sentence in stream.problems()]
        if problems:
            raise UserError("\n".join(problems), "deploy/tripletd.toml explains every key", EX_CONFIG)
        return
    unset = KafkaConfig.model_validate({})
    for name in KafkaConfig.model_fields:
        keys = ("stream.address", f"stream.kafka.{name}")
        in_file = origins.get(keys[0], "file") == origins.get(keys[1]) == "file"
        if in_file and getattr(stream.kafka, name) != getattr(unset, name):
            place = _place(("stream", "kafka", name), origins, path)
            found = f"{place}: of no use with stream.address {stream.address}"
            raise UserError(found, "give a kafka:// address, or remove the key", EX_CONFIG)


def _validated(
    tree: dict[str, Any], origins: Mapping[str, ValueOrigin], path: Path | None
) -> dict[str, Section]:
    problems = unknown_keys(tree)
    sections: dict[str, Section] = {}
    for name in SECTIONS:
        table = tree.get(name, {})
        model = SECTIONS[name]
        if name == "learner":
            model = learner_keys(table, default_algorithm(table, _embedding_columns(tree, sections)))
        try:
            sections[name] = model.model_validate(table)
        except ValidationError as error:
            problems += section_problems(name, error)
    if problems:
        lines = [f"{_place(key, origins, path)}: {sentence}" for key, sentence in problems]
        raise UserError("\n".join(lines), "deploy/tripletd.toml explains every key", EX_CONFIG)
    return sections


def _embedding_columns(tree: Mapping[str, Any], sections: Mapping[str, Section]) -> int:
    """The columns of a space of one view whose own ranking is kept, as `default_algorithm` wants them; 0 for
    others, and where there is a model for each key."""
    space, keys = sections.get("space"), tree.get("keys")
    if not isinstance(space, SpaceConfig) or (isinstance(keys, Mapping) and keys.get("slots", 0)):
        return 0
    views = list(space.views.values())
    return views[0].dim if len(views) == 1 and space.own_similarity == "cosine" else 0


def _place(key: tuple[str, ...], origins: Mapping[str, ValueOrigin], path: Path | None) -> str:
    dotted = ".".join(key)
    named = dotted if dotted in origins else next((k for k in origins if k.startswith(dotted + ".")), dotted)
    origin = origins.get(named, "file")
    if origin == "env":
        return f"environment TRIPLETD_{named.replace('.', '__').upper()}: {dotted}"
    if origin == "cli":
        return f"command line: {dotted}"
    return f"{path or 'configuration'}: {dotted}"
