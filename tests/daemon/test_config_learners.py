"""[learner]: the keys of every algorithm, and what is said of those of another one."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from daemon.config import load_config, parse_setting
from daemon.config.learners import LEARNERS, SomlDaKeys, all_keys, owners
from daemon.exits import UserError
from daemon.versions.algorithms import ALGORITHMS

NO_ENV: dict[str, str] = {}


def write(folder: Path, text: str) -> Path:
    path = folder / "tripletd.toml"
    path.write_text(text, encoding="utf-8")
    return path


KEYS_ELSEWHERE = [
    ('algorithm = "soml-da"\nC = 0.1', "learner.C", '"oasis"'),
    ("gamma = 0.1", "learner.gamma", '"soml-da"'),
    ('algorithm = "lego"\npsd_every = 3', "learner.psd_every", '"dissim-oasis"'),
]


@pytest.mark.parametrize(("text", "key", "owner"), KEYS_ELSEWHERE)
def test_a_key_of_another_algorithm_is_refused_by_its_name(
    tmp_path: Path, text: str, key: str, owner: str
) -> None:
    with pytest.raises(UserError) as caught:
        load_config(write(tmp_path, f"[learner]\n{text}\n"), environ=NO_ENV)
    assert f"{key}: a key of algorithm = " in caught.value.message
    assert owner in caught.value.message


def test_an_algorithm_nobody_knows_and_a_misspelt_key_name_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'learner\.algorithm: found "oasys"; allowed: "oasis", '):
        load_config(write(tmp_path, '[learner]\nalgorithm = "oasys"\n'), environ=NO_ENV)
    with pytest.raises(UserError, match=r"unknown key; did you mean gamma\?"):
        load_config(write(tmp_path, '[learner]\nalgorithm = "soml-da"\ngama = 1.0\n'), environ=NO_ENV)


def test_keys_of_any_algorithm_come_from_the_environment_and_the_command_line() -> None:
    environ = {"TRIPLETD_LEARNER__ALGORITHM": "soml-da", "TRIPLETD_LEARNER__GAMMA": "0.5"}
    config = load_config(None, {"learner.rho": parse_setting("learner.rho=2")[1]}, environ)
    assert isinstance(config.learner, SomlDaKeys)
    assert (config.learner.gamma, config.learner.rho, config.learner.dedupe_window) == (0.5, 2.0, 100_000)
    assert config.values()["learner"]["gamma"] == 0.5


def test_weights_of_kernels_come_from_the_command_line_and_the_environment() -> None:
    chosen = {"learner.algorithm": "omks", "learner.combine": "given"}
    text = parse_setting("learner.weights=1.2, 1.4")[1]
    given = load_config(None, {**chosen, "learner.weights": text})
    environ = {"TRIPLETD_LEARNER__WEIGHTS": "1.2,1.4"}
    for config in (given, load_config(None, chosen, environ=environ)):
        assert config.learner.weights == [1.2, 1.4]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"numbers such as 1\.2,1\.4"):
        load_config(None, {**chosen, "learner.weights": "1,x"})


@pytest.mark.parametrize("algorithm", sorted(LEARNERS))
def test_the_keys_of_an_algorithm_are_described_and_default_to_the_learners_own(algorithm: str) -> None:
    keys = LEARNERS[algorithm]
    assert all(field.description for field in keys.model_fields.values())
    made = keys()
    assert made.algorithm == algorithm
    columns = {"x": range(3)}
    settings = ALGORITHMS[algorithm].settings(made, columns)
    plain = {f.name: f.default for f in fields(settings) if f.default is not MISSING}
    if algorithm == "oks":
        plain["mean"] = True  # of the four kernels of the default
    if algorithm != "oasis-averaged":  # takes the settings of the learner whose W it averages
        assert {name: getattr(settings, name) for name in plain} == plain


def test_a_key_of_several_algorithms_has_one_type() -> None:
    for name in all_keys():
        types_of = {str(LEARNERS[one].model_fields[name].annotation) for one in owners(name)}
        assert len(types_of) == 1 or name == "algorithm", name
