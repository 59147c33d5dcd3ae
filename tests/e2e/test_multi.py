"""`bench multi` as a process: killed, interrupted, watched on terminals of every width, and started in no time."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Mapping

import pytest
from bench_runs import Workshop, count, lines
from hub_runs import TOKEN
from hub_server import HubServer
from rich.cells import cell_len
from sums_model import SumsModel
from terminals import read_all

TASKS = 20


@pytest.fixture
def place(shop: Workshop) -> Workshop:
    """A workshop with twenty sums, no two of them alike."""
    tasks = [{"id": f"sum-{n}", "prompt": f"{n} + {n}", "expected": str(2 * n)} for n in range(TASKS)]
    shop.write("sums.json", json.dumps(tasks))
    return shop


def command(place: Workshop, model: SumsModel, *more: str, names: tuple[str, ...] = ("my-model", "weak")) -> list[str]:
    tables = [f'[[model]]\nid = "{name}"\nbaseUrl = "{model.url}"\napiKey = "canary-of-the-user"\n' for name in names]
    place.write("models.toml", "\n".join(tables))
    return ["multi", "sums.json", "models.toml", *more]


def asked(model: SumsModel) -> Counter[tuple[str, str]]:
    """How often each task was sent to each model."""
    return Counter((body["model"], body["messages"][-1]["content"]) for body in model.requests)


def answers(place: Workshop) -> list[str]:
    """Keys of all answers on disk."""
    folders = [path.parent for path in place.run_dirs()]
    return [line["key"] for folder in folders for line in lines(folder) if line["type"] == "generated"]


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_and_asks_nothing_twice(place: Workshop) -> None:
    with SumsModel(latency=0.02) as model:
        args = command(place, model, names=("my-model", "weak", "third"))
        running = place.start(*args)
        running.until(lambda: sum(count(path.parent, "scored") for path in place.run_dirs()) >= 15, "15 are on disk")
        running.send(signal.SIGKILL)
        assert running.wait().code == -signal.SIGKILL
        kept, models = set(answers(place)), (place.cwd / "models.toml").read_text()
        # The model may still read requests of the killed process, so the others have another key.
        place.write("models.toml", models.replace("canary-of-the-user", "canary-of-the-next"))
        done = place.bench(*args, "--resume", "--json")
        assert done.code == 0, done.err
        again = model.keys.count("Bearer canary-of-the-next")
    assert len(answers(place)) == len(set(answers(place))) == 3 * TASKS and kept <= set(answers(place))
    assert again == 3 * TASKS - len(kept), "what is on disk is not asked again"
    result = json.loads(done.out)
    assert [each["total"] for each in result["summary"]] == [TASKS] * 3
    assert [each["successRate"] for each in result["summary"]] == [1.0, 0.9, 1.0]
    assert len(place.run_dirs()) == 3
    written = [path for path in place.cwd.rglob("*") if path.is_file() and path.name != "models.toml"]
    assert not [path for path in [*written, *place.logs.iterdir()] if b"canary" in path.read_bytes()]


@pytest.mark.slow
def test_an_interrupt_shows_what_there_is_and_the_way_to_go_on(place: Workshop) -> None:
    with SumsModel(latency=0.05) as model:
        running = place.start(*command(place, model, "--events", "events.jsonl", "--persist"))
        progress = place.cwd / "events.jsonl"
        running.until(lambda: progress.exists() and progress.read_text().count(":progress") >= 4, "four have ended")
        running.send(signal.SIGINT)
        done = running.wait()
        assert done.code == 130, done.err
        made = sum(asked(model).values())
        head = re.match(r"2 models on 20 tasks: (\d+) of 40 done, in ", done.out)
        assert head is not None and 4 <= int(head[1]) < 40
        assert "  my-model: " in done.out and "of 20 tasks: interrupted" in done.out
        [again] = [line.partition("go on: ")[2] for line in done.out.splitlines() if "go on: " in line]
        done = place.bench(*shlex.split(again)[1:])
        assert done.code == 0, done.err
        assert done.out.startswith(f"2 models on 20 tasks: 40 done, {head[1]} of them earlier, in ")
        assert set(asked(model).values()) == {1} and sum(asked(model).values()) == 40 and made < 40
    names = [json.loads(line)["event"].rpartition(":")[2] for line in progress.read_text().splitlines()]
    assert names.count("start") == names.count("complete") == 2 and names.count("progress") == 40
    records = [
        json.loads(line) for line in (place.cwd / ".memory/multi-model-eval/index.jsonl").read_text().splitlines()
    ]
    assert [sum(each["total"] for each in record["summary"]) for record in records] == [int(head[1]), 40]


def test_a_second_interrupt_leaves_at_once_and_loses_nothing(place: Workshop) -> None:
    with SumsModel(latency=0.05) as model:
        args = command(place, model)
        running = place.start(*args)
        running.until(lambda: sum(count(path.parent, "scored") for path in place.run_dirs()) >= 4, "four have ended")
        model.latency = 5.0
        before = sum(asked(model).values())
        running.until(lambda: sum(asked(model).values()) > before, "slow requests are under way")
        running.send(signal.SIGINT)
        running.says("stopping:")
        running.send(signal.SIGINT)
        done = running.wait(30)
        assert done.code == 130 and "of 40 done" in done.out and "go on: " in done.out
        model.latency = 0.0
        assert place.bench(*args, "--resume").code == 0
    assert len(answers(place)) == len(set(answers(place))) == 2 * TASKS


def on_terminal(place: Workshop, width: int, args: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """What a terminal of this width shows."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environ = {**place.environ(**env)}
    environ.pop("COLUMNS")
    child = subprocess.Popen(
        [sys.executable, "-m", "harness.cli.main", *args], cwd=place.cwd, env=environ,
        stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    seen = read_all(master)
    return child.wait(90), seen


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_terminal_of_any_width_shows_every_figure(place: Workshop, width: int) -> None:
    with SumsModel(latency=0.01) as model:
        args = command(place, model, names=("my-model", "weak", "qwen/qwen3-235b-a22b-instruct-2507"))
        env = {"TERM": "xterm-256color", "NO_COLOR": ""}
        code, seen = on_terminal(place, width, args, env)
    assert code == 0, seen
    assert "\x1b[" in seen and re.search(r"\d+/20", seen), "a table that is redrawn"
    report = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen[seen.rindex("3 models on 20 tasks") :]).replace("\r", "")
    body = report[: report.index("Run folders")].splitlines()
    assert max(map(cell_len, body)) <= width
    words = "my-model and qwen/qwen3-235b-a22b-instruct-2507 have the highest score. Against weak that may be noise."
    assert words in " ".join(report.split())
    for figure in ("0.701", "0.661", "90 %", "100 %", "-0.040"):
        assert figure in report, figure


@pytest.mark.slow
def test_a_terminal_without_other_characters_gets_ascii(place: Workshop) -> None:
    plain = {"TERM": "dumb", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    with SumsModel() as model:
        code, seen = on_terminal(place, 80, command(place, model), plain)
    assert code == 0, seen
    assert seen.isascii() and "\x1b" not in seen
    report = seen[seen.index("2 models on 20 tasks") :]
    assert "?" not in report and "-----" in report and "Difference from my-model" in report


@pytest.mark.slow
def test_a_reader_that_goes_away_costs_no_result(place: Workshop) -> None:
    with SumsModel(latency=0.02) as model:
        running = subprocess.Popen(
            [sys.executable, "-m", "harness.cli.main", *command(place, model)], cwd=place.cwd, env=place.environ(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
        assert running.wait(90) == 0, said
        running.stderr.close()
    assert "Traceback" not in said
    assert len(answers(place)) == 2 * TASKS


HELP = """
import sys
from harness.cli.main import main
assert main(["multi", "--help"]) == 0
heavy = ("datasets", "pandas", "pyarrow", "aiohttp", "jsonschema", "huggingface_hub", "rich", "harness.engine")
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""


def test_help_loads_nothing_that_takes_time(place: Workshop) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP], cwd=place.cwd, env=place.environ(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.slow
def test_every_model_is_published(place: Workshop) -> None:
    with HubServer() as hub, SumsModel() as model:
        hub.hub.account(TOKEN, "alice")
        done = place.bench(*command(place, model, "-H"), env={"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN})
        assert done.code == 0, done.err
        assert sorted(hub.hub.repos) == ["alice/sums_my-model", "alice/sums_weak"]
        for name, repo in hub.hub.repos.items():
            assert f"to {hub.url}/datasets/{name}" in done.err
            assert "canary" not in repo.text("README.md")
            assert any(path.endswith(".parquet") for path in repo.files)
