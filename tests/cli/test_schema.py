"""`bench schema`: JSON Schemas that accept what bench accepts, and that the files which it writes name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tables import for_each_row

from harness import evaluate
from harness.cli.main import main
from harness.settings.json_schema import endpoints_schema, suite_schema

ROOT = Path(__file__).parents[2]
SUITES = [*(ROOT / "configs" / "eval").glob("*.toml"), *(ROOT / "tests" / "data").rglob("config.toml")]


def faults(schema: Any, toml: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(tomllib.loads(toml))]  # pyright: ignore[reportUnknownMemberType]


@for_each_row("kind", ["suite", "endpoints"])
def test_the_command_prints_a_schema_and_writes_it(
    kind: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", kind]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(printed)
    file = tmp_path_factory.mktemp("schema") / "s.json"
    assert main(["schema", kind, "--output", str(file)]) == 0
    assert json.loads(file.read_text()) == printed
    assert capsys.readouterr().out == f"Wrote {file}. Begin a file with `#:schema {file}` to use it.\n"


def test_an_unknown_kind_and_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["schema", "suit"]) == 2
    assert capsys.readouterr().err == "error: suit: unknown kind of file; use suite or endpoints\n"
    assert main(["schema", "suite", "--output", str(tmp_path / "no" / "s.json")]) == 2
    assert f"the folder {tmp_path / 'no'} does not exist; create it first" in capsys.readouterr().err


def test_a_file_is_replaced_only_with_force(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "suite.toml"
    mine.write_text("mine")
    assert main(["schema", "suite", "-o", str(mine)]) == 2
    assert f"{mine} already exists; replace it with --force" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main(["schema", "suite", "-o", str(mine), "--force"]) == 0
    assert json.loads(mine.read_text())["title"] == "Suite of bench"


@for_each_row("file", SUITES)
def test_files_of_bench_are_valid(file: Path) -> None:
    assert faults(suite_schema(), file.read_text()) == []


def test_the_registry_of_the_repository_is_valid() -> None:
    assert faults(endpoints_schema(), (ROOT / "configs" / "endpoints.toml").read_text()) == []


@for_each_row(
    ("toml", "words"),
    [
        ("[[eval]]\nenv_id = 3", "3 is not of type 'string'"),
        ("[[eval]]\nenv_id = 'a'\nrollouts_per_example = 0", "0 is less than the minimum of 1"),
        ("[[eval]]\nenv_id = 'a'\nnum_exmples = 3", "'num_exmples' was unexpected"),
        ("[[eval]]\nenv_id = 'a'\n[eval.model]\nshuffle = true", "is not valid under any of the given schemas"),
        ("[[eval]]\nenv_id = 'a'\nrpm = 'never'", "'never' is not valid under any of the given schemas"),
        ("[budget]\nmax_cots = 3", "'max_cots' was unexpected"),
        ("[[endpoint]]\nmodel = 'a'", "'endpoint_id' is a required property"),
    ],
)
def test_what_bench_refuses_is_marked(toml: str, words: str) -> None:
    assert any(words in fault for fault in faults(suite_schema(), toml))


@for_each_row(
    "toml",
    [
        "model = 'm'\nmax_tokens = 100\ntemperature = 0.5\n[[eval]]\nenv_id = 'gsm8k'\nheader = ['X-A: b']",
        "[[eval]]\nid = 'a'\nrpm = 'none'\nargs = {a = 1}\nheaders = {A = 'b'}",
        "[[eval]]\nagent = 'agent:Loop'\ndataset = 'rows.jsonl'\neval_fns = 'rewards:score'",
        "[[ablation]]\nenv_id = 'a'\n[ablation.sweep]\ntemperature = [0, 1]",
        "[budget]\nmax_cost = 3\nmax_time = '30m'\n[env]\nenv_id = 'a'",
    ],
)
def test_what_bench_accepts_is_valid(toml: str) -> None:
    assert faults(suite_schema(), toml) == []


def test_a_run_whose_schema_cannot_be_written_names_none_and_says_why_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "schemas").write_text("a file, where a folder should be")
    with caplog.at_level("INFO"):
        [run] = evaluate("reverse-text", "reference/oracle", num_examples=1, progress=False)
    assert run.path is not None
    assert "#:schema" not in (run.path / "config.toml").read_text()
    assert faults(suite_schema(), (run.path / "config.toml").read_text()) == []
    [said] = [record.getMessage() for record in caplog.records if "JSON Schema" in record.getMessage()]
    assert said.startswith(f"{run.path / 'config.toml'} names no JSON Schema for editors: ")
    assert "outputs/schemas" in said


def test_a_run_names_the_schema_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [run] = evaluate("reverse-text", "reference/oracle", num_examples=1, progress=False)
    assert run.path is not None
    config = (run.path / "config.toml").read_text()
    first = config.splitlines()[0]
    assert first.startswith("#:schema ")
    assert faults(json.loads((run.path / first.removeprefix("#:schema ")).read_text()), config) == []
