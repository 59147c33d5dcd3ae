"""Environments whose datasets are on a Hub that cannot be reached: they fail at once with the reason, or use the copy
that is cached, and the others of the invocation run."""

from __future__ import annotations

import json
from pathlib import Path

import nursery
import pytest
from bench_runs import Workshop
from classic_hub import stock
from dead_ports import free_port, listening
from hub_runs import hub_env
from hub_server import HubServer

ASK = """
import json, os, sys, logging
from huggingface_hub import constants, get_session
from huggingface_hub.utils import http_backoff
from harness.envs import hub
logging.basicConfig(level=logging.WARNING)
found = []
for constants.ENDPOINT in json.loads(sys.argv[1]):
    with hub.failing_fast():
        try:
            # Retried, as every request of `datasets` is.
            said = str(http_backoff("GET", constants.ENDPOINT + "/api/datasets/a/b").status_code)
        except OSError as error:
            said = f"{type(error).__name__}: {error}"
        found.append([said, hub.refusal()])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_is_asked_once(tmp_path: Path) -> None:
    with HubServer() as server, HubServer() as unwell, listening() as silent, listening(full=True) as full:
        unwell.fail("info", 503, times=None)
        dead = f"http://127.0.0.1:{free_port()}"
        urls = [
            server.url,
            unwell.url,
            dead,
            f"http://127.0.0.1:{silent}",
            f"http://127.0.0.1:{full}",
            "http://a.invalid",
        ]
        environ = {**hub_env(server, tmp_path, token=None), "HF_HUB_ETAG_TIMEOUT": "1"}
        done = nursery.run(["-c", ASK, json.dumps(urls)], environ=environ)
        assert done.returncode == 0, done.stderr
        assert [(seen.method, seen.status) for seen in server.requests] == [("HEAD", 401), ("GET", 401)]
        assert [(seen.method, seen.status) for seen in unwell.requests] == [("HEAD", 503)]
    assert "Retrying" not in done.stderr
    reached, *others = json.loads(done.stdout)
    assert reached == ["401", ""]
    for url, words, (said, why) in zip(
        urls[1:], ("HTTP 503", "refused", "no answer within 1 s", "no answer within 1 s", ""), others, strict=True
    ):
        assert said == f"OfflineModeIsEnabled: {why}"
        assert why.startswith(f"{url} cannot be reached (") and words in why


OWN = """
import harness
def rows():
    from datasets import load_dataset
    return load_dataset("openai/gsm8k", "main", split="test")
def load_environment(late):
    return harness.SingleTurnEnv(
        dataset=rows if late else rows(), rubric=harness.Rubric([lambda completion: 1.0])
    )
"""
CLASSIC = """
import verifiers as vf
def load_environment():
    return vf.SingleTurnEnv(dataset=vf.load_example_dataset("gsm8k"), rubric=vf.Rubric(funcs=[]))
"""


@pytest.mark.slow
def test_environments_of_an_unreachable_hub_fail_and_no_others(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.environment("own", OWN)
    shop.environment("rhymes", CLASSIC)
    own = "".join(f'[[eval]]\nenv_id = "own"\nname = "own{n}"\nenv_args = {{late = {late}}}\n' for n, late in OWNS)
    others = "".join(f'[[eval]]\nenv_id = "{name}"\n' for name in ("gsm8k", "rhymes", "simple_qa", "sums"))
    isolated = '[[eval]]\nenv_id = "gsm8k"\nname = "apart"\nisolate = true\n'
    shop.write("suite.toml", f'num_examples = 2\n[model]\nmodel = "reference/null"\n{own}{others}{isolated}')
    url = f"http://127.0.0.1:{free_port()}"
    done = shop.bench("run", "suite.toml", "--json", "-v", env={"HF_ENDPOINT": url})
    assert done.out, done.err
    states = {run["name"]: run["state"] for run in done.runs}
    assert states.pop("sums") == "done", done.err
    assert set(states.values()) == {"failed"} and len(states) == 6, done.err
    for run in done.runs:
        if run["name"] != "sums":
            assert f"{url} cannot be reached (" in run["note"], run
        if run["name"] in ("gsm8k", "apart", "simple_qa"):
            assert '"split": "sample"' in run["note"] and "PATH.jsonl" in run["note"]
    assert "Retrying" not in done.err


OWNS = ((1, "false"), (2, "true"))


@pytest.mark.slow
def test_what_is_cached_is_used_without_the_hub(tmp_path: Path) -> None:
    load = "import harness; print(harness.load_environment('gsm8k').row_count)"
    with HubServer() as server:
        stock(server.hub)
        first = nursery.run(["-c", load], environ=hub_env(server, tmp_path, token=None))
        assert first.stdout, first.stderr
    again = nursery.run(["-c", load], environ=hub_env(server, tmp_path, token=None))
    assert (again.stdout, "Retrying" in again.stderr) == (first.stdout, False), again.stderr
