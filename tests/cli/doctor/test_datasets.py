"""Datasets of the Hub that environments load: found in their sources, asked for once, and looked for in the cache."""

from __future__ import annotations

import json
from pathlib import Path

import nursery
import pytest
from dead_ports import free_port
from hub_repos import Repo
from hub_runs import hub_env
from hub_server import HubServer

from harness.cli.doctor.hub import find_datasets

SOURCES = {
    'SOURCE = RowSource(hub_id="a/b", sample=rows)\ndef load_environment(split="test"): ...': ["a/b"],
    'S = RowSource(hub_id="a/b")\ndef load_environment(dataset="a/b", split="test"): ...': ["a/b"],
    'from datasets import load_dataset\ndef rows():\n  return load_dataset("a/b", "main", split="test")': ["a/b"],
    'import datasets\nNAME = "a/b"\nrows = datasets.load_dataset(path=NAME)': ["a/b"],
    'import verifiers as vf\nrows = vf.load_example_dataset("gsm8k")': ["openai/gsm8k"],
    "def load_environment(*, dataset_name='gsm8k'):\n  rows = load_example_dataset(dataset_name)": ["openai/gsm8k"],
    'rows = load_dataset("squad") + load_dataset("json", data_files="x.json") + load_dataset(f"{x}/y")': ["squad"],
    "def load_environment(dataset='a/b'): ...": [],
    "this is no Python": [],
}


@pytest.mark.plugins
def test_the_ids_stand_in_the_sources(tmp_path: Path) -> None:
    file = tmp_path / "env.py"
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        file.write_text(source)
        found[source] = find_datasets([file], {})[0]
    assert found == SOURCES
    file.write_text(list(SOURCES)[1])
    (tmp_path / "rows.jsonl").touch()
    arguments = {
        "sample": {"split": "sample"},
        "c/d": {"dataset": "c/d"},
        "file": {"dataset": f"{tmp_path}/rows.jsonl"},
    }
    assert {name: find_datasets([file], given)[0] for name, given in arguments.items()} == {
        "sample": [], "c/d": ["c/d"], "file": [],
    }  # fmt: skip


@pytest.mark.slow
def test_what_cannot_be_loaded_is_a_problem_with_what_to_do(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text("".join(f'[[eval]]\nenv_id = "{name}"\n' for name in ("gsm8k", "simple_qa")))
    cached = tmp_path / "datasets/openai___gsm8k/main/0.0.0/abc/gsm8k-test.arrow"
    cached.parent.mkdir(parents=True)
    cached.touch()

    def doctor(*more: str, **environ: str) -> list[tuple[str, str, str]]:
        command = ["bench", "doctor", str(suite), "-m", "reference/null", "--json", *more]
        done = nursery.run(command, cwd=tmp_path, environ={**hub_env(server, tmp_path, None), **environ})
        found = [each for each in json.loads(done.stdout)["findings"] if each["area"] == "hub"]
        return [(each["name"], each["status"], each["says"] + (each["fix"] or "")) for each in found]

    with HubServer() as server:
        server.hub.repos["openai/gsm8k"] = Repo("openai/gsm8k", private=False)
        [[name, status, says], [_, other, missing]] = doctor()
        assert (name, status, says) == (
            "openai/gsm8k", "ok", f"dataset of gsm8k: {server.url} has it, and a copy is cached",
        )  # fmt: skip
        assert (other, "does not show it" in missing) == ("problem", True)
        assert [(seen.method, seen.path.split("/", 3)[-1]) for seen in server.requests].count(
            ("HEAD", "openai/gsm8k")
        ) == 1
        asked = len(server.requests)
        url = f"http://127.0.0.1:{free_port()}"
        for more, environ, words, last in (
            ((), {"HF_ENDPOINT": url}, f"{url} cannot be reached", "problem"),
            ((), {"HF_HUB_OFFLINE": "1"}, "no request sent, because of HF_HUB_OFFLINE", "problem"),
            (("--offline",), {}, "no request sent, because of --offline", "note"),
        ):
            [[_, status, says], [_, other, missing]] = doctor(*more, **environ)
            assert (status, words in says, "the cached copy is used" in says) == ("ok", True, True)
            assert (other, words in missing, "no copy is cached" in missing) == (last, True, True)
            assert last == "note" or '"split": "sample"' in missing
        assert len(server.requests) == asked
