"""`bench run` against `bench serve` with faults: what becomes of each rollout. Nothing is a score that is none, nothing
that heals costs a rollout, and what never heals stops the run with one message."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from agent_evals import write_files
from bench_runs import BENCH, PATIENCE, Done, Server, Workshop, rows

from harness.plugins.faults.catalogue import KINDS
from harness.plugins.faults.spoil import GARBLINGS

QUIZ = """
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(bool(completion) and completion[-1]["content"] == answer)  # a prompt that does not fit has no answer

class Quiz(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment(size):
    rows = [{"question": f"question {n}.", "answer": f"the answer is {n}"} for n in range(size)]
    return Quiz(dataset=rows, rubric=Rubric([correct]))
"""

ADDER = """
import json
from harness import Rubric, ToolEnv

def add(x: int, y: int) -> int:
    "Add two numbers."
    return x + y

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

class Adder(ToolEnv):
    def reference_reply(self, example, messages):
        if messages[-1]["role"] == "tool" and messages[-1]["content"] == example.answer:
            return example.answer
        arguments = json.dumps({"x": int(example.answer), "y": 0})
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

def load_environment(size):
    rows = [{"question": f"question {n}.", "answer": str(n)} for n in range(size)]
    return Adder([add], dataset=rows, rubric=Rubric([correct]), max_turns=4)
"""

DEEP = json.dumps({"choices": [{"message": {"role": 7, "content": "x", "more": json.loads("[" * 300 + "]" * 300)}}]})
USAGE = {"prompt_tokens": -5, "completion_tokens": 2**63 - 1, "total_tokens": 1, "cost": float("nan")}
NONSENSE = json.dumps({"choices": [{"message": {"content": "x"}}], "usage": USAGE})

ALWAYS: Mapping[str, tuple[float | str, int]] = {
    # Of HTTP: what may heal is tried again, once here; the rest is asked for once.
    "429": ("rate_limit", 2),
    "429@retry_after=Wed, 21 Oct 2015 07:28:00 +9999999999999999999": ("rate_limit", 2),
    "408": ("timeout", 2),
    "500": ("server_error", 2),
    "503@retry_after=0": ("server_error", 2),
    "529": ("server_error", 2),
    "400": ("bad_request", 1),
    "418": ("bad_request", 1),
    "422": ("bad_request", 1),
    "400@message=maximum context length is 10 tokens": (0.0, 1),
    "403@message=flagged by moderation": ("bad_request", 1),
    "html@status=502": ("server_error", 2),
    "huge@status=500": ("server_error", 2),
    "huge@status=400": ("bad_request", 1),
    "wrapped-error": ("rate_limit", 2),
    "wrapped-error@code=503": ("server_error", 2),
    # An error beside an answer is an error wherever it stands, and counts by its own code.
    "wrapped-error@form=top": ("rate_limit", 2),
    "wrapped-error@form=top,finish=null,code=502": ("server_error", 2),
    "wrapped-error@form=top,code=rate_limit_exceeded": ("rate_limit", 2),
    "wrapped-error@form=top,code=400": ("bad_request", 1),
    "wrapped-error@form=choice": ("rate_limit", 2),
    "wrapped-error@form=choice,finish=length,code=503": ("server_error", 2),
    "wrapped-error@form=choice,finish=null,code=INVALID_ARGUMENT": ("bad_request", 1),
    "wrapped-error@form=text,code=500": ("server_error", 2),
    "wrapped-error@form=text,code=whatever": ("bad_response", 2),
    "wrapped-error@form=code,code=504": ("server_error", 2),
    "wrapped-error@form=object,code=408": ("timeout", 2),
    "wrapped-error@form=finish": ("bad_response", 2),
    "wrapped-error@form=finish,finish=network_error": ("bad_response", 2),
    "wrapped-error@form=empty": (1.0, 1),
    "no-max-tokens": (1.0, 1),
    "cut-gzip": ("connection", 2),
    "partial": ("bad_response", 2),
    "two-choices": (1.0, 1),
    # Of connections.
    "reset": ("connection", 2),
    "close": ("connection", 2),
    "hang": ("timeout", 2),
    "reset-body": ("connection", 2),
    "close-body": ("connection", 2),
    "hang-body": ("timeout", 2),
    "trickle@seconds=60": ("timeout", 2),
    "slow@seconds=60": ("timeout", 2),
    "bad-gzip": ("connection", 2),
    # Of bodies that hold no answer.
    "truncated": ("bad_response", 2),
    "invalid-json": ("bad_response", 2),
    "html": ("bad_response", 2),
    "empty-body": ("bad_response", 2),
    "event-stream": ("bad_response", 2),
    "malformed": ("bad_response", 2),
    "body@text=[]": ("bad_response", 2),
    "no-choices": ("bad_response", 2),
    "huge": ("bad_response", 2),
    "huge@gzip=true": ("bad_response", 2),
    "bad-tool-call@form=nameless": ("bad_response", 2),
    # Answers, whatever they are worth: scored.
    "null-content": (0.0, 1),
    "empty-content": (0.0, 1),
    "content-filter": (0.0, 1),
    "refusal": (0.0, 1),
    "length": (0.0, 1),
    "bad-tool-call": (0.0, 1),
    "no-usage": (1.0, 1),
    "wrong-model": (1.0, 1),
    "trickle@seconds=0.5": (1.0, 1),
    "slow@seconds=0.5": (1.0, 1),
    f"body@text={DEEP}": (0.0, 1),
    f"body@text={NONSENSE}": (0.0, 1),
}
"""Fault → reason or reward, and requests, with one retry."""

ONCE = [
    *("429", "429@retry_after=0", "429@retry_after=-1", "429@retry_after=soon", "429@retry_after=1", "500", "503"),
    *("429@retry_after=date+1", "429@retry_after=date-99999", "429@retry_after=1e999", "429@header.retry-after-ms=50"),
    "429@header.x-ratelimit-reset-requests=50ms",
    "429@retry_after=Wed, 21 Oct 2015 07:28:00 +9999999999999999999",
    *(spec for spec, (outcome, tries) in ALWAYS.items() if isinstance(outcome, str) and tries == 2),
]
"""What is forgotten when it happens once."""

ONLY_FIRST = ",at=1,per=rollout"

SYSTEMIC: Mapping[str, tuple[str, int]] = {
    "401": ("HTTP 401: injected fault: 401; no key was sent", 1),
    "402": ("HTTP 402", 1),
    "403": ("HTTP 403", 1),
    "404": ("HTTP 404: injected fault: 404; check the model name 'some' and the base URL", 1),
    "405": ("HTTP 405", 1),
    "429@code=insufficient_quota": ("HTTP 429", 1),
    "wrapped-error@form=top,code=401": ("HTTP 401", 1),
    "wrapped-error@form=choice,code=invalid_api_key": ("HTTP 401", 1),
    "wrapped-error@form=code,code=insufficient_quota": ("HTTP 429", 1),
    "huge@status=401": ("HTTP 401", 1),
    "close-body@status=401": ("HTTP 401", 1),
    "hang-body@status=403": ("HTTP 403", 1),
    "html": ("the body is a web page, not JSON", 3),
    "empty-body": ("the body is empty (3 attempts); is the base URL that of an OpenAI-compatible API?", 3),
    "event-stream": ("the body is an event stream, which was not requested", 3),
    "reset": ("at every attempt, and it has never answered", 3),
    "close": ("at every attempt, and it has never answered", 3),
    "reset-body": ("the reply broke off in the middle at every attempt, and it has never answered", 3),
}
"""What no request can get past: words of the one message, and requests until then."""


def faults(specs: list[str], more: str = "") -> list[str]:
    """Flags that let the question of a fault's number meet it."""
    flags: list[str] = []
    for number, spec in enumerate(specs):
        flags += ["--fault", f"{spec}{',' if '@' in spec else '@'}prompt=question {number}.{more}"]
    return flags


@contextmanager
def serving(shop: Workshop, env: str, size: int, *flags: str) -> Generator[Server]:
    """`bench serve` that knows the answers of `env` and spoils some."""
    with shop.bench_serve(*flags, "--env", env, "-a", json.dumps({"size": size}), "--policy", "oracle") as server:
        yield server


def run(shop: Workshop, server: Server, env: str, size: int, *more: str) -> Done:
    args = json.dumps({"size": size})
    return shop.bench("run", env, "-a", args, "-n", "-1", "-r", "1", "-m", "some", "-b", server.url, "--json", *more)


def told(server: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url.removesuffix('/v1')}/faults", timeout=60) as reply:
        return json.load(reply)


@pytest.mark.slow
def test_what_becomes_of_a_rollout_that_meets_the_same_fault_again_and_again(shop: Workshop) -> None:
    shop.environment("quiz", QUIZ)
    specs = [*ALWAYS, "none"]
    with serving(shop, "quiz", len(specs), *faults(specs[:-1])) as server:
        more = ("--request-retries", "1", "--request-timeout", "6")
        done = run(shop, server, "quiz", len(specs), *more)
        report = told(server)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    found = {int(row["example_id"]): row for row in rows(shop.run_dir())}
    assert len(found) == len(specs)
    became = {
        spec: (row["reward"] if row["reward"] is not None else row["error"].partition(":")[0], rule["hits"])
        for number, (spec, rule) in enumerate(zip(specs, report["rules"], strict=False))
        if (row := found[number])
    }
    assert became == dict(ALWAYS)
    assert found[len(specs) - 1]["reward"] == 1.0
    summary = done.run["summary"]
    assert summary["scored"] == 1 + sum(not isinstance(outcome, str) for outcome, _ in ALWAYS.values())
    assert summary["not_run"] == 0


@pytest.mark.slow
def test_what_happens_once_is_forgotten(shop: Workshop) -> None:
    shop.environment("quiz", QUIZ)
    with serving(shop, "quiz", len(ONCE), *faults(ONCE, ONLY_FIRST)) as server:
        done = run(shop, server, "quiz", len(ONCE), "--request-timeout", "6")
        report = told(server)
    assert done.code == 0, done.err
    assert done.run["summary"]["reward"]["mean"] == 1.0
    assert done.run["summary"]["scored"] == len(ONCE)
    assert [(rule["requests"], rule["hits"]) for rule in report["rules"]] == [(2, 1)] * len(ONCE)
    assert report["requests"] == 2 * len(ONCE)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SYSTEMIC)
def test_what_no_request_gets_past_stops_the_run_with_one_message(shop: Workshop, spec: str) -> None:
    words, requests = SYSTEMIC[spec]
    with shop.bench_serve("--fault", spec) as server:
        flags = ("--max-concurrent", "1", "--request-retries", "2", "--json")
        done = shop.bench("run", "sums", "-n", "-1", "-r", "4", "-m", "some", "-b", server.url, *flags)
        assert told(server)["requests"] == requests
    assert done.code == 1
    assert words in done.run["note"]
    assert (done.run["state"], done.run["summary"]["scored"], done.run["summary"]["reward"]["mean"]) == (
        "stopped", 0, None,
    )  # fmt: skip
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_key_that_is_withdrawn_stops_the_run_and_keeps_what_is_done(shop: Workshop) -> None:
    with shop.bench_serve("--fault", "401@at=12-", "--env", "sums", "--policy", "oracle") as server:
        more = ("-n", "-1", "-r", "4", "-m", "some", "-b", server.url, "--max-concurrent", "2", "--json")
        done = shop.bench("run", "sums", *more)
        report = told(server)
    assert done.code == 1
    assert "HTTP 401" in done.run["note"]
    numbers = done.run["summary"]
    assert (numbers["scored"], numbers["reward"]["mean"]) == (11, 1.0)
    assert numbers["scored"] + sum(numbers["unscored"].values()) + numbers["not_run"] == 96
    assert report["faults"] <= 4, "three in a row, and what was on its way"


@pytest.mark.slow
def test_a_garbled_tool_call_is_told_to_the_model_and_no_error_of_the_run(shop: Workshop) -> None:
    shop.environment("adder", ADDER)
    specs = [f"bad-tool-call@form={form}" for form in GARBLINGS]
    with serving(shop, "adder", len(specs), *faults(specs, ONLY_FIRST)) as server:
        done = run(shop, server, "adder", len(specs))
        report = told(server)
    assert done.code == 0, done.err
    assert [rule["hits"] for rule in report["rules"]] == [1] * len(specs)
    became = {form: row["reward"] for form, row in zip(GARBLINGS, rows(shop.run_dir()), strict=True)}
    assert became == dict.fromkeys(GARBLINGS, 1.0)


DOORS: Mapping[str, list[str]] = {
    "run": ["run", "sums", "-n", "2", "-r", "1", "-m", "some", "--max-tokens", "500"],
    "run-S": ["run", "sums", "-n", "2", "-r", "1", "-m", "some", "-S", '{"extra_body": {"max_tokens": 500}}'],
    "eval": [
        "eval", "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match", "--model", "some",
        "--max-tokens", "500", "--batch-size", "1",
    ],
    "multi": ["multi", "sums.json", "models.toml", "--max-tokens", "500"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_refuses_max_tokens_is_asked_for_max_completion_tokens(shop: Workshop, door: str) -> None:
    """As OpenAI's reasoning models; one request a client pays for the discovery, and the run stays the same run."""
    write_files(shop.cwd)
    row = {"system_prompt": "Add.", "user_prompt": "1 + 1", "ground_truth": "2", "level": "easy"}
    shop.write("data.jsonl", json.dumps(row) + "\n" + json.dumps({**row, "user_prompt": "2 + 2"}) + "\n")
    shop.write("sums.json", json.dumps([{"id": str(n), "prompt": f"{n} + 1"} for n in range(2)]))
    with shop.bench_serve("--fault", "no-max-tokens") as server:
        shop.write("models.toml", f'[[model]]\nid = "some"\nbaseUrl = "{server.url}"\n')
        url = {"multi": [], "eval": ["--base-url", server.url]}.get(door, ["-b", server.url, "-c", "1"])
        done = shop.bench(*DOORS[door], *url)
        asked = told(server)["requests"]
    assert done.code == 0, done.err
    found = [row for manifest in shop.run_dirs() for row in rows(manifest.parent)]
    assert [row["error"] for row in found] == [None, None]
    assert all(row["completion"] for row in found)
    most = {"run": 3, "run-S": 3, "eval": 5, "multi": 4}[door]
    assert asked <= most, "what was refused is remembered"


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["200", "-1"])
def test_fewer_open_files_than_requests_lower_what_is_in_flight(shop: Workshop, asked: str) -> None:
    flags = ["run", "sums", "-n", "-1", "-r", "9", "-m", "reference/oracle", "--json", f"--max-concurrent={asked}"]
    limited = ["sh", "-c", 'ulimit -n 160; exec "$0" "$@"', str(BENCH), *flags]
    ended = subprocess.run(limited, cwd=shop.cwd, env=shop.environ(), capture_output=True, text=True, timeout=PATIENCE)
    done = Done(ended.returncode, ended.stdout, ended.stderr)
    assert done.code == 0, done.err
    assert done.run["summary"]["scored"] == 216
    wanted = "any number" if asked == "-1" else asked
    assert f"at most 16 requests instead of {wanted} can be in flight" in done.said
    assert "160 files" in done.said


@pytest.mark.slow
def test_another_parameter_that_a_model_refuses_is_named_with_what_to_do(shop: Workshop) -> None:
    words = "Unsupported value: 'temperature' does not support 0.7 with this model."
    with shop.bench_serve("--fault", f"400@message={words},code=unsupported_value") as server:
        done = shop.bench("run", "sums", "-n", "1", "-r", "1", "-m", "some", "-b", server.url, "-T", "0.7")
        assert told(server)["requests"] == 1
    assert rows(shop.run_dir())[0]["reward"] is None
    assert f"{words}; remove it from the sampling arguments" in rows(shop.run_dir())[0]["error"], done.err


def test_every_fault_there_is_stands_in_the_tables() -> None:
    named = {spec.partition("@")[0] for spec in (*ALWAYS, *SYSTEMIC)}
    assert [name for name in KINDS if name not in named] == []
