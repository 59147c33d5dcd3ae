"""Every error that the settings can make, through the real command: exit code 2, no traceback, and words that help."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[[str, str], Path]

FILES = {
    "unknown-table.toml": '[sav]\nsave_results = true\n[[eval]]\nid = "toy-env"\n',
    "unknown-key.toml": '[[eval]]\nid = "toy-env"\nnum_exmaples = 9\n',
    "unknown-group-key.toml": '[[eval]]\n[eval.env]\nenv_id = "toy-env"\nrollouts_per_exmple = 9\n',
    "wrong-type.toml": '[env]\nnum_examples = "ten"\n[[eval]]\nid = "toy-env"\n',
    "unknown-env.toml": '[[eval]]\nid = "toy-evn"\n',
    "same-on-hub.toml": 'save_to_hf_hub = true\n[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-env"\nargs = {a = 1}\n',
    "syntax.toml": "[[eval]\n",
    "zero.toml": '[[eval]]\nid = "toy-env"\nrollouts_per_example = 0\n',
}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("unknown-table.toml", ["unknown-table.toml", "sav:", '"save"']),
        ("unknown-key.toml", ["unknown-key.toml", "eval[0].num_exmaples", '"num_examples"']),
        ("unknown-group-key.toml", ["eval[0].env.rollouts_per_exmple", '"rollouts_per_example"']),
        ("wrong-type.toml", ["wrong-type.toml", "env.num_examples", "integer", '"ten"']),
        ("unknown-env.toml", ["unknown-env.toml", "eval[0].id", "'toy-evn'", "bench env install"]),
        ("same-on-hub.toml", ["same-on-hub.toml", "eval[0]", "eval[1]", "hf_hub_dataset_name"]),
        ("syntax.toml", ["syntax.toml", "not valid TOML"]),
        ("zero.toml", ["zero.toml", "eval[0].rollouts_per_example = 0", "at least 1"]),
        ("missing.toml", ["missing.toml", "no such file"]),
        ("unknown-kee.toml", ["no such file", "did you mean unknown-key.toml?"]),
        ("toy-env -a {bad", ["-a", "not valid JSON", "line 1"]),
        ("toy-env -x [1]", ["-x", "JSON object"]),
        ("toy-env -S {", ["-S", "not valid JSON"]),
        ("toy-env -n 0", ["-n 0", "num_examples", "-1"]),
        ("toy-env -r 0", ["-r 0", "rollouts_per_example"]),
        ("toy-env -c 0", ["-c 0", "max_concurrent", "unlimited"]),
        ("toy-env -n ten", ['-n "ten"', "integer"]),
        ("toy-env --timeout soon", ["--timeout", "soon", "number"]),
        ("toy-env --header nocolon", ["--header", "Name: Value"]),
        ("toy-env -b localhost:8000", ["-b", "api_base_url", "http"]),
        ("toy-env -k sk-123456789", ["-k", "environment variable"]),
        ("toy-env -H --no-save", ["-H", "--no-save"]),
        ("toy-env -H -D a//b", ["-D", "Hub repository"]),
        ("toy-env -C reward", ["-C", "reward"]),
        ("toy-env -e nowhere.toml", ["nowhere.toml", "no such endpoint registry"]),
        ("toy-env -p nowhere", ["-p nowhere", "this folder does not exist"]),
        ("toy-env --set env.num_exmaples=5", ["--set env.num_exmaples", '"num_examples"']),
        ("toy-env --set num_examples", ["--set num_examples", "PATH=VALUE"]),
        ("toy-env --set otter-env:num_examples=5", ["otter-env"]),
        ("toy-env,other-env --name mine", ["--name"]),
        ("toy-env --resume --resume-from x", ["--resume", "--resume-from"]),
        ("toy-env --retry-failed", ["--retry-failed", "--resume"]),
        ("toy-env --dry-run --resume", ["--dry-run", "--resume"]),
        ("toy-env --num-exampels 5", ["--num-exampels", "--num-examples"]),
        ("toy-evn", ["toy-evn", "bench env install"]),
        (",", ["is not a valid target"]),
        ("", ["TARGET"]),
    ],
)
def test_an_error_says_what_and_where(bench: Any, write: Write, command: str, words: list[str]) -> None:
    for name, text in FILES.items():
        write(name, text)
    done = bench("run", *command.split())
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    assert [word for word in words if word not in done.err] == [], done.err
    assert "sk-123456789" not in done.err


def test_what_is_told_never_stops_a_dry_run(bench: Any, write: Write) -> None:
    write("configs/endpoints.toml", '[[endpoint]]\nendpoint_id = "mini"\nurl = "http://localhost:1/v1"\n')
    write("suite.toml", '[[eval]]\nid = "toy-env"\nnum_examples = 100\n')
    done = bench("run", "suite.toml", "-m", "mimi", "-n", "5", "--dry-run")
    assert done.code == 0
    notes = done.err.splitlines()
    assert notes[0] == (
        "note: -n 5 has no effect on toy-env: suite.toml sets eval[0].num_examples = 100; use --set env.num_examples=5"
    )
    assert "did you mean 'mini'?" in notes[1]
    assert notes[2].startswith("note: a real run would not start: PRIME_API_KEY is not set")


def test_dotenv_fills_in_what_the_process_does_not_set(
    bench: Any, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "process")
    monkeypatch.setenv("PRIME_API_KEY", "")
    monkeypatch.delenv("PRIME_API_KEY")
    write(".env", "PRIME_API_KEY=from-file\nOTHER_KEY=from-file\nnot a line\n")
    done = bench("run", "toy-env", "--dry-run", "--json")
    assert done.code == 0
    assert done.err == "note: .env, line 3 was skipped: it is not of the form NAME=value\n"
    assert os.environ["PRIME_API_KEY"] == "from-file"
    assert os.environ["OTHER_KEY"] == "process"
    assert "from-file" not in done.out


def test_a_missing_key_variable_stops_before_the_first_call(bench: Any) -> None:
    done = bench("run", "toy-env", "-k", "NO_SUCH_KEY")
    assert done.code == 2
    assert done.err.startswith(
        "error: NO_SUCH_KEY is not set, but toy-env at https://api.pinference.ai/api/v1 needs this API key"
    )
    assert "Traceback" not in done.err
