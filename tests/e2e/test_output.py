"""What a user of the terminal, and a program, get to see: streams, exit codes, and what lies on disk afterwards."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop, rows, summary
from terminals import read_all

NOISY = """
import logging, os, subprocess, sys, warnings
from harness import Rubric, SingleTurnEnv
print("printed at import")

def loud(answer):
    print("printed in a reward")
    sys.stdout.write("written in a reward\\n")
    return 1.0

class Noisy(SingleTurnEnv):
    async def setup_state(self, state):
        print("printed in a rollout", flush=True)
        logging.getLogger("noisy").warning("logged in a rollout")
        os.write(1, b"written past python\\n")
        subprocess.run(["echo", "said by a child process"])

    def reference_reply(self, example, messages):
        return "yes \\x1b[31mred\\x1b[0m"

def load_environment():
    print("printed while loading")
    return Noisy(dataset=[{"question": "q\\x1b[2J", "answer": "a"}], rubric=Rubric([loud]))
"""

CHATTY = """
import logging
from harness import Rubric, SingleTurnEnv
logging.getLogger("chatty_library").addHandler(logging.StreamHandler())

class Chatty(SingleTurnEnv):
    def reference_reply(self, example, messages):
        logging.getLogger("chatty_library.http").warning("retrying in 1s")
        logging.getLogger("quiet").warning("no handler")
        return "a"

def load_environment():
    return Chatty(dataset=[{"question": "q", "answer": "a"}], rubric=Rubric([lambda answer: 1.0]))
"""


def test_json_is_all_that_stdout_holds(shop: Workshop) -> None:
    shop.environment("noisy", NOISY)
    done = shop.bench("run", "noisy,sums", "-m", "reference/oracle", "-n", "1", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert set(document) == {"runs", "suite"}
    assert done.out.rstrip("\n").endswith("}")
    noisy = document["runs"][0]
    assert [noisy[name] for name in ("env_id", "name", "model", "state")] == [
        "noisy", "noisy", "reference/oracle", "done",
    ]  # fmt: skip
    assert set(noisy["summary"]) >= {
        "num_examples", "num_rollouts", "scored", "unscored", "reward", "metrics", "pass_at_k", "pass_hat_k", "usage",
        "wall_s",
    }  # fmt: skip
    assert set(noisy["summary"]["reward"]) >= {"mean", "stderr", "ci95", "std", "min", "max"}
    assert json.loads((shop.cwd / noisy["path"] / "summary.json").read_text()) == noisy["summary"]
    for words in ("at import", "while loading", "in a rollout", "in a reward", "past python", "by a child process"):
        assert words in done.err, "what an environment says is not lost"
    assert "logged in a rollout" in done.err


def test_what_a_library_prints_of_its_own_log_is_not_said_twice(shop: Workshop) -> None:
    """huggingface_hub, for one, has a handler of its own and passes its records on to the root as well."""
    shop.environment("chatty", CHATTY)
    done = shop.bench("run", "chatty", "-m", "reference/oracle", "-n", "1", "-r", "1")
    assert done.code == 0, done.err
    assert [line for line in done.err.splitlines() if "retrying" in line] == ["retrying in 1s"]
    assert "WARNING quiet: no handler" in done.err


def test_without_json_the_table_is_all_that_stdout_holds(shop: Workshop) -> None:
    shop.environment("noisy", NOISY)
    done = shop.bench("run", "noisy", "-m", "reference/oracle", "-n", "1")
    assert done.code == 0, done.err
    assert done.out.startswith("run ")
    assert "printed" not in done.out and "written" not in done.out and "said by" not in done.out
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("piped", ["stdout", "stderr", None])
def test_the_live_table_is_for_a_terminal_on_both_streams(shop: Workshop, piped: str | None) -> None:
    master, slave = pty.openpty()
    env = {"TERM": "xterm-256color", "NO_COLOR": "", "LINES": "40"}
    with shop.bench_serve("--env", "sums", "--latency", "300") as server:
        args = ["run", "sums", "-n", "8", "-r", "1", "-c", "2", "-m", "reference/oracle", "-b", server.url]
        running = shop.start_on(slave, *args, piped=piped, env=env)
        os.close(slave)
        seen = read_all(master)
        done = running.wait()
    assert done.code == 0, done.err
    said = seen + done.out + done.err
    if piped is None:
        assert "\x1b[" in seen and re.search(r"\d+/8", seen), "a table that is redrawn"
    else:
        assert "\x1b[?25l" not in said and "\x1b[1A" not in said and "\x1b[2K" not in said, said
        assert "sums: done, 8/8" in said
    assert "outputs/evals/sums--reference--oracle/" in said


# Exit codes: 0, 1 and 130 stand beside what causes them in the other files.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("no-such-env", "-m", "reference/oracle"), "no environment 'no-such-env' is installed"),
        (("nope.toml",), "nope.toml"),
        (("sums", "-m", "gpt-4.1-mini"), "PRIME_API_KEY is not set"),
        (("sums", "-m", "reference/oracle", "-a", '{"sise": 3}'), "did you mean 'size'?"),
        (("sums", "-m", "reference/oracle", "-x", '{"sise": 3}'), "env.extra_env_kwargs.sise"),
        (("sums", "-m", "reference/orcle"), "reference/orcle"),
        (
            ("sums", "-m", "reference/oracle", "-S", '{"stream": true}'),
            "sampling_args.stream: streamed replies are not",
        ),
        (("sums", "-m", "reference/oracle", "-S", '{"n": 3}'), "for more rollouts, raise -r"),
        (("sums", "-m", "reference/oracle", "-C", "reward"), "reward"),
        (("sums", "-m", "reference/oracle", "-C", "correct"), "correct"),
    ],
)
def test_wrong_words_exit_2_before_anything_starts(shop: Workshop, args: tuple[str, ...], words: str) -> None:
    done = shop.bench("run", *args, env={"PRIME_API_KEY": ""})
    assert (done.code, done.out) == (2, ""), done.err
    assert words in done.said
    assert "Traceback" not in done.err
    assert not (shop.cwd / "outputs").exists()


# Suites


def test_a_comma_list_runs_side_by_side(shop: Workshop) -> None:
    done = shop.bench("run", "sums,reverse-text", "-n", "2", "-r", "1", "-m", "reference/oracle", "--json")
    assert done.code == 0, done.err
    assert [(run["env_id"], run["summary"]["scored"]) for run in done.runs] == [("sums", 2), ("reverse-text", 2)]
    [suite] = (shop.cwd / "outputs" / "suites").glob("*.json")
    recorded = json.loads(suite.read_text())
    assert [f"outputs/{run['path']}" for run in recorded["runs"]] == [run["path"] for run in done.runs]
    assert recorded["command"] == "bench run sums,reverse-text -n 2 -r 1 -m reference/oracle --json"
    for run in done.runs:
        manifest = json.loads((shop.cwd / run["path"] / "run.json").read_text())
        assert (manifest["suite"], manifest["status"]) == (suite.stem, "done")


def test_a_suite_gives_each_run_its_own_settings(shop: Workshop) -> None:
    shop.write(
        "suite.toml",
        """
        [env]
        num_examples = 4
        [model]
        model = "reference/oracle"
        [[eval]]
        [eval.env]
        env_id = "sums"
        rollouts_per_example = 1
        [[eval]]
        [eval.env]
        env_id = "sums"
        name = "sums-large"
        num_examples = 6
        env_args = { first = 100, tag = "large " }
        state_columns = ["stop_condition"]
        [eval.model]
        model = "reference/null"
        """,
    )
    refused = shop.bench("run", "suite.toml", "-r", "2")
    assert refused.code == 2, "a state column named like a fixed one"
    assert "stop_condition" in refused.said
    suite = shop.cwd / "suite.toml"
    suite.write_text(suite.read_text().replace('state_columns = ["stop_condition"]', ""))
    done = shop.bench("run", "suite.toml", "-r", "2", "-n", "3", "--json")
    assert done.code == 0, done.err
    assert "-n 3 has no effect" in done.said, "a file beats a flag, and says so"
    small, large = done.runs
    assert (small["name"], small["model"], small["summary"]["num_rollouts"]) == ("sums", "reference/oracle", 4)
    assert (large["name"], large["model"], large["summary"]["num_rollouts"]) == ("sums-large", "reference/null", 12)
    assert (small["summary"]["reward"]["mean"], large["summary"]["reward"]["mean"]) == (1.0, 0.0)
    first = rows(shop.cwd / large["path"])[0]
    assert first["prompt"][0]["content"] == "large 100 + 100"


def test_one_environment_twice_is_two_runs_that_resume_apart(shop: Workshop) -> None:
    shop.write(
        "suite.toml",
        """
        model = "reference/oracle"
        [[eval]]
        env_id = "sums"
        name = "few"
        num_examples = 2
        [[eval]]
        env_id = "sums"
        name = "many"
        num_examples = 5
        """,
    )
    first = shop.bench("run", "suite.toml", "--json")
    assert first.code == 0, first.err
    again = shop.bench("run", "suite.toml", "--json", "--resume")
    assert again.code == 0, again.err
    assert [run["path"] for run in again.runs] == [run["path"] for run in first.runs]
    assert [run["summary"]["num_rollouts"] for run in again.runs] == [6, 15]
    assert len({run["path"] for run in first.runs}) == 2


def test_runs_that_nothing_tells_apart_do_not_resume_into_each_other(shop: Workshop) -> None:
    args = ["run", "sums,sums", "-n", "3", "-r", "1", "-m", "reference/oracle", "--json"]
    first = shop.bench(*args)
    assert first.code == 0, first.err
    assert "2 runs have the name 'sums' and the model reference/oracle; give each a unique `name`" in first.said
    again = shop.bench(*args, "--resume")
    assert (again.code, again.out) == (2, "")
    assert "two runs called 'sums' would both resume" in again.said
    for run in first.runs:
        config = f"{run['path']}/config.toml"
        one = shop.bench("run", config, "--resume-from", run["path"], "--json", "--set", "env.num_examples=4")
        assert one.code == 0, one.err
        assert (one.run["path"], one.run["summary"]["scored"]) == (run["path"], 4)


# What is kept


def test_no_save_leaves_nothing_behind(shop: Workshop) -> None:
    temporary = shop.cwd / "tmp"
    temporary.mkdir()
    done = shop.bench("run", "sums", "-m", "reference/oracle", "--no-save", "--json", env={"TMPDIR": str(temporary)})
    assert done.code == 0, done.err
    assert (done.run["path"], done.run["summary"]["scored"]) == (None, 15)
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in shop.cwd.iterdir()) == ["tmp"]


def test_results_go_where_they_are_told(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-n", "2", "-m", "reference/oracle", "-o", "else/where", "--json")
    assert done.code == 0, done.err
    assert done.run["path"].startswith("else/where/evals/sums--reference--oracle/")
    run = shop.run_dir("else/where")
    assert {path.name for path in run.iterdir()} >= {"run.json", "config.toml", "journal.jsonl", "summary.json", "data"}
    assert (run.parent / "README.md").exists()
    assert not (shop.cwd / "outputs").exists()


def test_a_run_is_repeated_from_its_own_config(shop: Workshop) -> None:
    first = shop.bench(
        "run", "sums", "-n", "7", "-r", "2", "-m", "reference/noisy?accuracy=0.5&seed=9", "-a", '{"size": 20}',
        "-T", "0.3", "--shuffle", "--shuffle-seed", "5", "-c", "3", "--timeout", "60", "--json",
    )  # fmt: skip
    assert first.code == 0, first.err
    run = shop.cwd / first.run["path"]
    config = run / "config.toml"
    again = shop.bench("run", str(config), "--json")
    assert again.code == 0, again.err
    other = shop.cwd / again.run["path"]
    assert other != run
    assert (other / "config.toml").read_text() == config.read_text()

    def told(folder: Path) -> dict[str, Any]:
        manifest = json.loads((folder / "run.json").read_text())
        return {name: manifest[name] for name in ("settings", "identity", "seed", "planned", "name", "env_id", "model")}

    assert told(other) == told(run)

    def keys(folder: Path) -> set[tuple[Any, ...]]:
        return {
            (line["key"], line["rollout_index"], line["completion"][0]["content"])
            for line in map(json.loads, (folder / "journal.jsonl").read_text().splitlines())
            if line["type"] == "generated"
        }

    assert keys(other) == keys(run)
    assert summary(other) == summary(run)


def test_the_commands_that_are_shown_work(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-n", "2", "-m", "reference/oracle", "-q", env={"COLUMNS": "60"})
    load = next(line.partition("load:")[2].strip() for line in done.out.splitlines() if "load:" in line)
    counted = shop.python(f"from datasets import load_dataset; print(({load}).num_rows)")
    assert counted == 6
    publish = next(line.partition("publish:")[2].strip() for line in done.out.splitlines() if "publish:" in line)
    refused = shop.bench(*shlex.split(publish)[1:], env={"HF_TOKEN": ""})
    assert refused.code == 1
    assert "you are not logged in" in refused.said


def test_a_dataset_smaller_than_what_is_asked_for_is_said(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-n", "100", "-r", "1", "-m", "reference/oracle", "-a", '{"size": 7}', "--json")
    assert done.code == 0, done.err
    assert (done.run["summary"]["num_examples"], done.run["summary"]["planned"]) == (7, 7)
    assert "note: sums: -n 100 asks for more than the 7 examples of its dataset" in done.said
    (shop.cwd / "many.toml").write_text('[[eval]]\nenv_id = "sums"\nnum_examples = 30\nargs = {size = 7}\n')
    done = shop.bench("run", "many.toml", "-r", "1", "-m", "reference/oracle")
    asked = "note: sums: many.toml: eval[0].num_examples = 30 asks for more than the 7 examples of its dataset"
    assert asked in " ".join(done.said.split())
    done = shop.bench("run", "sums", "-r", "1", "-m", "reference/oracle", "-a", "size=1")
    assert "asks for more" not in done.said, "nobody asked for the five of the default"
    assert "1 rollout\n" in done.err
