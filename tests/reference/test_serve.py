"""`bench serve` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

BENCH = [sys.executable, "-c", "from harness.cli.main import main; raise SystemExit(main())", "serve", "--port", "0"]

ENVIRONMENT = """
from harness import Rubric, SingleTurnEnv

print("loading the toy")


class Doubles(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer


def load_environment(count=3):
    rows = [{"question": f"twice {i}", "answer": str(2 * i)} for i in range(count)]
    return Doubles(dataset=rows, rubric=Rubric(funcs=[lambda completion: 1.0]))
"""


@contextmanager
def serving(*options: str, cwd: Path | None = None) -> Generator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*BENCH, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env={**os.environ}
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def ask(url: str, model: str, content: str) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@for_each_row("number", [signal.SIGINT, signal.SIGTERM])
def test_the_url_comes_first_and_a_signal_ends_it_well(number: signal.Signals) -> None:
    with serving() as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/v1")
        assert ask(url, "any", "hello")[1]["usage"]["completion_tokens"] == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
        assert f"curl -s {url}/chat/completions" in err
        assert f"bench run gsm8k -m any-name -b {url}" in err


def test_an_environment_is_played_for_any_client(tmp_path: Path) -> None:
    (tmp_path / "doubles.py").write_text(ENVIRONMENT)
    options = ("--env", "./doubles.py", "-a", '{"count": 5}', "--policy", "oracle")
    with serving(*options, cwd=tmp_path) as (_, url):
        assert ask(url, "reference/oracle", "twice 4")[1]["choices"][0]["message"]["content"] == "8"
        assert ask(url, "my-model", "twice 2")[1]["choices"][0]["message"]["content"] == "4"
        status, body = ask(url, "reference/oracle", "twice 9")
        assert (status, body["error"]["code"]) == (404, "no_player")


@pytest.mark.plugins
def test_faults_on_request() -> None:
    options = ("--fail-rate", "1", "--fail-status", "429", "--retry-after", "7", "--latency", "1")
    with serving(*options) as (_, url):
        assert ask(url, "any", "x")[0] == 429
        with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=60) as reply:
            assert json.loads(reply.read()) == {
                "requests": 1,
                "in_flight": 0,
                "peak_in_flight": 1,
                "faults": {"429": 1},
            }


@pytest.mark.plugins
def test_scripted_faults_and_what_is_told_of_them_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text('seed = 3\n[[fault]]\nfault = "503"\nmodel = "b"\n')
    with serving("--faults", "faults.toml", "--fault", "429@at=2", "--fail-rate", "0", cwd=tmp_path) as (process, url):
        assert [ask(url, model, "x")[0] for model in "aaab"] == [200, 429, 200, 503]
        with urllib.request.urlopen(f"{url}/faults", timeout=60) as reply:
            assert [each["fault"] for each in json.loads(reply.read())["served"]] == ["", "429", "", "503"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-4:] == [
        "served 4 requests, 2 faults",
        "fault        asked  hit",
        "429@at=2         4    1",
        "503@model=b      1    1",
    ]


@pytest.mark.plugins
def test_the_faults_there_are_can_be_listed() -> None:
    done = subprocess.run([*BENCH, "--list-faults"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "reset            the connection is reset before any byte of the reply\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "oracle"], "add --env"),
        (["--policy", "orcale"], "did you mean reference/oracle?"),
        (["--fault", "rest"], 'did you mean "reset"?'),
        (["--faults", "none.toml"], "cannot read none.toml"),
        (["--fault", "reset@share=0.6", "--hang-rate", "0.6"], "but must not exceed 1"),
        (["--latency", "-1"], "Invalid value for '--latency'"),
        (["--latency", "nan"], "'--latency'"),
        (["--fail-rate", "1", "--retry-after", "1\r\nX: y"], "is not a valid HTTP header"),
        (["--fail-rate", "2"], "--fail-rate: share must be a number from 0 to 1"),
        (["--fail-status", "teapot"], "--fail-status must be a list of HTTP statuses, as in 429,500, not 'teapot'"),
        (["--env", ","], "--env is empty"),
        (["-a", "{}", "--env", "no-such-environment"], "no-such-environment"),
        (["-a", "[1]", "--env", "x"], "must be a JSON object"),
        (["-a", "{", "--env", "x"], "not valid JSON"),
        (["-a", '{"a": 1}'], "no effect without --env"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
    ],
)
def test_wrong_options_start_nothing(options: list[str], words: str) -> None:
    done = subprocess.run([*BENCH, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert "Traceback" not in done.stderr
