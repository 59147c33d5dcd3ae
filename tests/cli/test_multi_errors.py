"""What `bench multi` refuses, in which words, before anything is sent or made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dead_ports import free_port
from multi_evals import Multi

WRONG: list[tuple[tuple[str, ...], str]] = [
    (("sums.json",), "Model configs required: give a models file after the tasks, or models with -m"),
    (("sums.json", "models.toml", "--model-concurrency", "0"), "--model-concurrency must be >= 1."),
    (("sums.json", "models.toml", "--task-concurrency", "-1"), "--task-concurrency must be >= 1."),
    (("sums.json", "models.toml", "-t", "0"), "--max-tokens must be >= 1."),
    (("sums.json", "models.toml", "-T", "nan"), "--temperature must be a number, not nan."),
    (("sums.json", "models.toml", "--timeout-ms", "inf"), "--timeout-ms must be a number, not inf."),
    (("sums.json", "models.toml", "--match-mode", "fuzzy"), "--match-mode must be contains or exact, not fuzzy"),
    (("sums.json", "models.toml", "--schema-mode", "x"), "--schema-mode must be subset or jsonschema, not x"),
    (("sums.json", "models.toml", "--events", ""), "--events is empty; if it comes from a shell variable"),
    (("sums.json", "-m", " "), "--model is empty; if it comes from a shell variable"),
    (("sums.json", "models.toml", "--no-include-inputs"), "--no-include-inputs only affects the record that --p"),
    (("sums.json", "models.toml", "-b", "http://x/v1"), "--api-base-url applies only to models given with -m"),
    (("sums.json", "models.toml", "-k", "KEY"), "--api-key-var applies only to models given with -m"),
    (
        ("sums.json", "-m", "a", "-m", "b", "-m", "c", "-b", "http://x/v1", "-b", "http://y/v1"),
        "2 values of --api-base-url do not match the number of -m options (3)",
    ),
    (
        ("sums.json", "-m", "a", "-k", "A", "-k", "B"),
        "2 values of --api-key-var do not match the number of -m options (1)",
    ),
    (("sums.json", "models.toml", "--no-save", "--resume"), "--no-save and --resume are mutually exclusive"),
    (("sums.json", "models.toml", "--dry-run", "--retry-failed"), "--dry-run does not read recorded runs"),
    (("sums.json", "models.toml", "-H", "--no-save"), "because --no-save does not save it"),
    (
        ("sums.json", "gpt-4.1-mini"),
        "gpt-4.1-mini: no such models file; to give a model by name, use -m gpt-4.1-m",
    ),
    (("sums.json", "model.toml"), 'model.toml: no such models file; did you mean "models.toml"?'),
    (("sums.json", "."), ". is a folder; MODELS must be a file that defines models"),
    (("sum.json", "models.toml"), 'sum.json does not exist; did you mean "sums.json"?'),
    (("sums.json", "-m", "zzz/gpt-5"), "give its address with -b"),
    (("sums.json", "-m", "opnai/gpt-5"), "did you mean 'openai/gpt-5'?"),
    (
        ("sums.json", "-m", "openai/gpt-5"),
        "Missing API key for provider 'openai'. Set OPENAI_API_KEY or LITELLM_API_KEY",
    ),
    (("sums.json", "-m", "openai/gpt-5"), "or pass -k."),
    (("sums.json", "-m", "x", "-b", "nonsense"), '-m (x): -b = "nonsense": must be an http or https URL'),
    (("sums.json", "-m", "reference/orakle"), "did you mean reference/oracle?"),
    (("sums.json", "-m", "x", "-e", "nosuch.toml"), "nosuch.toml: no such endpoint registry"),
    (("sums.json", "models.toml", "--score-output", "nosuch:fn"), "Cannot import module 'nosuch'"),
    (("sums.json", "models.toml", "--score-output", "scoring:wrods"), "wrods"),
    (("sums.json", "models.toml", "--set", "model.model=x"), "--set model.model: set the name, address and key of"),
    (("sums.json", "models.toml", "--set", "strnog:model.rpm=1"), "there is no run named 'strnog'; did you mean"),
    (("sums.json", "models.toml", "--set", "env.rollouts_per_example=3"), "each model gets each task once"),
    (("sums.json", "models.toml", "-S", "n=3"), "for more rollouts, raise the number of times that a task is listed"),
    (("sums.json", "models.toml", "--events", "sums.json/x"), "--events sums.json/x: cannot open"),
    (("sums.json", "models.toml", "--events", "./sums.json"), "--events ./sums.json is read by this evaluation"),
    (("sums.json", "models.toml", "--events", "models.toml"), "--events models.toml is read by this evaluation"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words[1:])[:60] for words, _ in WRONG])
def test_wrong_words_are_refused_before_anything_is_sent(multi: Multi, words: tuple[str, ...], said: str) -> None:
    done = multi.bench("multi", *words)
    assert (done.code, done.out) == (2, ""), done.err
    assert said in done.err and "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("error: ")
    assert multi.model.requests == [] and not (multi.cwd / "outputs").exists()


FILES: list[tuple[str, str, str]] = [
    ("models.toml", '[[model]]\nid = "a"\nmodelld = "b"\n', "unknown key 'modelld'; did you mean \"modelId\"?"),
    ("models.toml", "[[model]]\n", "the model has no name; give it a modelId, or an id that is the model's name"),
    ("models.toml", "[[model]\n", "models.toml: not valid TOML"),
    ("models.toml", "", "Model configs required"),
    ("models.toml", '[[models]]\nid="a"\n[[endpiont]]\n', "endpiont: unknown key"),
    ("models.toml", '[[endpoint]]\nendpoint_idd = "a"\n', "endpoint_id: must be a string"),
    ("sums.json", "[]", "Task list required"),
    ("sums.json", "{", "not valid JSON"),
    ("sums.json", '[{"prompt": "a", "expcted": 1}]', "'expcted'"),
    ("sums.json", '[{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}]', "have the same id 'a'"),
]


@pytest.mark.parametrize(("name", "text", "said"), FILES, ids=[f"{name}-{said[:30]}" for name, _, said in FILES])
def test_a_file_that_is_wrong_is_refused_by_name(multi: Multi, name: str, text: str, said: str) -> None:
    (multi.cwd / name).write_text(text)
    done = multi.multi()
    assert (done.code, done.out) == (2, ""), done.err
    assert said in done.err and "Traceback" not in done.err
    assert multi.model.requests == [] and not (multi.cwd / "outputs").exists()


def test_a_key_that_is_not_set_stops_before_the_first_model_is_asked(multi: Multi) -> None:
    multi.models("strong")
    table = '\n[[model]]\nid = "far"\nbaseUrl = "https://models.example/v1"\napiKeyVar = "NOT_SET_HERE"\n'
    with (multi.cwd / "models.toml").open("a") as file:
        file.write(table)
    done = multi.multi()
    assert done.code == 2 and "NOT_SET_HERE" in done.err and "far" in done.err
    assert multi.model.requests == []


def test_a_key_of_a_registry_that_is_not_set_is_refused_with_what_can_be_done_about_it(multi: Multi) -> None:
    (multi.cwd / "mine.toml").write_text(
        '[[endpoint]]\nendpoint_id = "far"\nurl = "https://models.example/v1"\nkey = "NOT_SET_HERE"\n'
    )
    whole = multi.bench("multi", "sums.json", "mine.toml")
    assert (
        whole.code == 2
        and "NOT_SET_HERE is not set, but far at https://models.example/v1 needs this API key" in whole.err
    )
    assert "put it in .env, name another variable with apiKeyVar, use another endpoint with baseUrl" in whole.err
    assert " -k" not in whole.err, "that is about models of -m"
    assert "name another variable with apiKeyVar" in multi.bench("multi", "sums.json", "mine.toml", "--dry-run").err
    named = multi.bench("multi", "sums.json", "-m", "far", "-e", "mine.toml")
    assert named.code == 2 and "name another variable with -k" in named.err


def test_a_literal_key_is_in_no_file_and_on_no_screen(multi: Multi) -> None:
    multi.models("strong", apiKey="sk-canary-123456")
    done = multi.multi("--persist", "--events", "events.jsonl", "--json", "-v")
    assert done.code == 0, done.err
    assert set(multi.model.keys) == {"Bearer sk-canary-123456"}
    assert "canary" not in done.out + done.err
    kept = [path for path in multi.cwd.rglob("*") if path.is_file() and path.name != "models.toml"]
    assert len(kept) > 5 and not [path for path in kept if b"canary" in path.read_bytes()]
    record = json.loads(next(path for path in kept if path.name.startswith("mmeval_")).read_text())
    assert record["modelConfigs"] == [{"id": "strong", "modelId": "strong", "baseUrl": multi.model.url}]


@pytest.mark.parametrize(
    "text",
    [
        "model.extra_headers.X-Api-Key=canary-0123456789abcdef",
        "model.extra_headers={X-Api-Key='canary-0123456789abcdef'}",
    ],
)
def test_a_secret_header_that_is_typed_is_in_no_file_and_on_no_screen(multi: Multi, text: str) -> None:
    done = multi.multi("--set", text, "--persist")
    assert done.code == 0 and "publish: bench multi sums.json models.toml --set" in done.out
    assert "canary" not in done.out + done.err
    kept = [path for path in multi.cwd.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"canary" in path.read_bytes()]


def test_a_record_that_cannot_be_written_is_told_and_loses_nothing_else(multi: Multi) -> None:
    (multi.cwd / "taken").write_text("a file")
    done = multi.multi("--persist-dir", "taken/deeper", "--json")
    assert done.code == 1
    persist = json.loads(done.out)["persist"]
    assert (persist["enabled"], persist["stored"]) == (True, False)
    assert persist["reason"] == "Failed to prepare run directory"
    assert "No record: Failed to prepare run directory: " in done.err
    assert len(multi.runs()) == 2


def test_nothing_is_hidden_if_nobody_answers_at_all(multi: Multi) -> None:
    table = '[[model]]\nid = "{0}"\nbaseUrl = "http://127.0.0.1:{1}/v1"\n'
    (multi.cwd / "models.toml").write_text("".join(table.format(name, free_port()) for name in "ab"))
    done = multi.multi("--json", "--set", "model.request_retries=0")
    assert done.code == 1
    result = json.loads(done.out)
    assert [each["total"] for each in result["summary"]] == [0, 0]
    assert [each["avgScore"] for each in result["summary"]] == [0.0, 0.0]
    assert all("connection refused" in each["stopReason"] for each in result["summary"])
    assert "2 models on 6 tasks: 0 of 12 done" in done.err


@pytest.mark.slow
def test_a_stdout_that_is_full_is_said_after_all_is_kept(multi: Multi) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no full disk to write to")
    import subprocess
    import sys

    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli.main", "multi", "sums.json", "models.toml", "--persist"],
            cwd=multi.cwd, stdout=full, stderr=subprocess.PIPE, text=True, timeout=90, check=False,
        )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: cannot write to the terminal or file that shows the results")
    assert len(multi.runs()) == 2 and list((multi.cwd / ".memory" / "multi-model-eval").glob("mmeval_*.json"))
