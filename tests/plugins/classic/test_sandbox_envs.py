"""`vf.SandboxEnv` and `vf.PythonEnv` in packages of both generations: what the model reads, what stays and for how
long, what is refused, and that a broken sandbox is no score. The sandbox is a real one."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Done, Workshop, lines
from classic_runs import KEYS, Played, results, run_command
from classic_server import ScriptedModel, offered
from containers import IMAGE, need_podman, podman
from sandboxes import eventually, marked, sandbox

from harness.core.errors import SandboxError
from harness.plugins.classic.container_bench import ContainerBench
from harness.sandbox import MachineSpec

pytestmark = pytest.mark.slow

RELEASES = {"B": "==0.1.9.post3", "C": "==0.1.14"}

SHELL = """
import os
import verifiers as vf
from datasets import Dataset
from verifiers.envs.sandbox_env import SandboxEnv, SandboxState


class ShellEnv(SandboxEnv):
    async def setup_state(self, state, **kwargs):
        if state["answer"] == "elsewhere":
            state["working_dir"] = "/tmp"
        state = await super().setup_state(state, **kwargs) or state
        state["kind"] = type(state["sandbox_state"]).__name__
        return state

    def get_sandbox_request(self, state):
        request = super().get_sandbox_request(state)
        return request.model_copy(update={"environment_vars": {"ROW": state["answer"]}})

    async def post_rollout(self, state):
        found = await self.bash("cat answer.txt", state["sandbox_id"], state["sandbox_state"])
        state["found"] = found
        ran = await self.sandbox_client.execute_command(state["sandbox_id"], "cat answer.txt; exit 4", timeout=5)
        state["ran"] = [ran.stdout, ran.stderr, ran.exit_code]


def right(state, answer) -> float:
    return float(state["found"] == answer and state["ran"] == [answer, "", 4])


def load_environment(rows=("blue",), **options):
    rows = [{"question": f"Write {row}.", "answer": row} for row in rows]
    return ShellEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[right]), **options)
"""

PYTHON = """
import verifiers as vf
from datasets import Dataset


class PyEnv(vf.PythonEnv):
    async def post_rollout(self, state):
        state["files"] = await self.bash("ls", state["sandbox_id"], state["sandbox_state"])
        state["count"] = state["python_state"]["execution_count"]


def right(completion, answer) -> float:
    return float(completion[-1]["content"] == answer)


def runs(state) -> int:
    return state["count"]


def named(state) -> float:
    return float(state["files"] == "kept.txt")


def load_environment(**options):
    rows = [{"question": "What is 6 * 7?", "answer": "42"}]
    rubric = vf.Rubric(funcs=[right, runs, named], weights=[1.0, 0.0, 0.0])
    return PyEnv(dataset=Dataset.from_list(rows), rubric=rubric, **options)
"""


class Model(ScriptedModel):
    """A scripted model without a play: its turns are tool calls (a list for each message), or its answer."""

    def __init__(self, tool: str, *turns: list[str] | str) -> None:
        super().__init__()
        argument = "command" if tool == "bash" else "code"
        self._replies = [
            {"turn": number, "say": turn}
            if isinstance(turn, str)
            else {"turn": number, "say": None, "call": [[tool, json.dumps({argument: code})] for code in turn]}
            for number, turn in enumerate(turns, 1)
        ]


@pytest.fixture(params=["B", "C"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Workshop:
    sandbox()
    shop = Workshop(tmp_path)
    for name, source in (("shell_pack", SHELL), ("python_pack", PYTHON)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(source)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "1"\ndependencies = ["verifiers{RELEASES[request.param]}"]\n'
        )
    return shop


def environ(shop: Workshop, **more: str) -> dict[str, str]:
    path = os.pathsep.join(str(shop.cwd.parent / name) for name in ("shell_pack", "python_pack"))
    return {"PYTHONPATH": path, "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", **dict.fromkeys(KEYS, ""), **more}


def play(shop: Workshop, name: str, model: Model, *more: str, **args: object) -> Played:
    with model as server:
        command = run_command(name, server.url, "-r", "1", "-a", json.dumps(args), *more)
        done = shop.bench(*command, env=environ(shop))
        assert shop.run_dirs(), done.err
        run = shop.run_dir()
        return Played(done, run, results(run), server.requests, offered(server.requests), [])


def refusal(shop: Workshop, name: str, args: Mapping[str, object], **env: str) -> Done:
    with Model("bash", "never") as server:
        done = shop.bench(*run_command(name, server.url, "-a", json.dumps(args)), env=environ(shop, **env))
    assert server.requests == []
    return done


def told(played: Played) -> list[str]:
    """What the model read of its calls, in the only rollout."""
    [result] = played.results
    return [message["content"] for message in result["completion"] if message["role"] == "tool"]


def only(played: Played) -> dict[str, Any]:
    [result] = played.results
    assert result["outcome"] == "scored", result
    return result


# bash


def test_files_stay_for_a_rollout_and_its_end_can_look_into_them(shop: Workshop) -> None:
    played = play(
        shop,
        "shell_pack",
        Model(
            "bash",
            ["pwd; printf $ROW > answer.txt; cd /tmp; x=1"],
            ["cat answer.txt; echo $x; pwd", "echo oops >&2; exit 3", "echo a; echo b >&2", "true"],
            "done",
        ),
    )
    assert told(played) == [
        "/tmp/work",
        "blue\n/tmp/work",
        "stderr:\noops",
        "a\nstderr:\nb",
        "(no output)",
    ]
    result = only(played)
    assert result["reward"] == 1.0
    metrics = result["metrics"]
    assert (metrics["bash_calls"], metrics["total_tool_calls"], metrics["num_turns"]) == (5.0, 5.0, 3.0)
    assert 0 < metrics["sandbox_ready_wait_time"] < 60
    assert 0 < metrics["sandbox_command_execution_time"] < 10
    [tools] = {json.dumps(tools) for tools in [played.tools]}
    assert "bash" in tools and "command" in tools
    for hidden in ("sandbox_id", "working_dir", "sandbox_state"):
        assert hidden not in tools


def test_rollouts_share_nothing(shop: Workshop) -> None:
    model = Model("bash", ["ls; printf $ROW > answer.txt; cat answer.txt"], "done")
    played = play(shop, "shell_pack", model, rows=["blue", "red", "green"])
    said = {result["completion"][1]["content"] for result in played.results}
    assert said == {"blue", "red", "green"}
    assert [result["reward"] for result in played.results] == [1.0, 1.0, 1.0]


def test_commands_run_in_the_working_dir_of_the_state(shop: Workshop) -> None:
    model = Model("bash", ["pwd; printf elsewhere > /tmp/work/answer.txt"], "done")
    played = play(shop, "shell_pack", model, rows=["elsewhere"])
    assert (told(played), only(played)["reward"]) == (["/tmp"], 1.0)


def test_a_command_that_takes_too_long_is_ended_and_the_files_stay(shop: Workshop) -> None:
    model = Model("bash", ["printf blue > answer.txt; sleep 60"], ["cat answer.txt"], "done")
    played = play(shop, "shell_pack", model, timeout_per_command_seconds=1)
    assert told(played) == ["Error: Command timed out after 1s", "blue"]
    assert only(played)["reward"] == 1.0


def test_a_sandbox_that_is_lost_is_replaced_and_the_model_is_told(shop: Workshop) -> None:
    model = Model("bash", ["echo x > gone; kill -9 $PPID; sleep 5"], ["ls; printf blue > answer.txt"], "done")
    played = play(shop, "shell_pack", model)
    lost, after = told(played)
    assert lost.startswith("Error: It was ended by signal 9. It starts afresh with the next call: all files,")
    assert after == "(no output)"
    assert only(played)["reward"] == 1.0


def test_a_limit_is_told_by_its_name(shop: Workshop) -> None:
    hog = "python3 -c 'x = bytearray(150 << 20); x[::4096] = bytes(38400); import time; time.sleep(20)'"
    model = Model("bash", [hog], ["printf blue > answer.txt"], "done")
    played = play(shop, "shell_pack", model, memory_gb=0.1)
    first, _ = told(played)
    assert first.startswith("Error: It used more than 102 MB of memory. It starts afresh")
    assert only(played)["reward"] == 1.0


def test_much_output_loses_its_middle(shop: Workshop) -> None:
    played = play(shop, "shell_pack", Model("bash", ["seq 100000; printf blue > answer.txt"], "done"))
    [said] = told(played)
    assert said.startswith("1\n2\n3\n") and said.endswith("99999\n100000")
    assert "bytes left out" in said and len(said) < 60_000


def test_start_command_and_advice_of_the_machine(shop: Workshop) -> None:
    wait = "while [ ! -s /tmp/up ]; do sleep 0.05; done; cat /tmp/up; printf blue > answer.txt"
    played = play(
        shop, "shell_pack", Model("bash", [wait], "done"), start_command="echo up > /tmp/up; sleep 1000",
        docker_image="ubuntu:24.04", sandbox_name="n", team_id="t", max_retries=1, cpu_cores=2,
        sandbox_client_max_workers=3, timeout_minutes=5,
    )  # fmt: skip
    assert told(played) == ["up"]
    assert played.done.said.count("docker_image='ubuntu:24.04' is not used") == 1
    assert only(played)["reward"] == 1.0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"gpu_count": 1}, "ShellEnv: gpu_count=1 requests a GPU"),
        ({"advanced_configs": {"a": 1}}, "advanced_configs are settings of a remote provider"),
        ({"memory_gb": 0}, "memory_gb must be a number above 0, not 0"),
    ],
)
def test_what_would_change_results_is_refused(shop: Workshop, args: dict[str, object], words: str) -> None:
    done = refusal(shop, "shell_pack", args)
    assert done.code == 1 and words in done.said


def test_an_image_of_its_own_needs_a_container_engine(shop: Workshop) -> None:
    args = {"docker_image": "pytorch/pytorch:2"}
    for name, path, words in (
        ("shell_pack", "/nowhere", "needs docker or podman, and neither works here"),
        ("python_pack", os.environ["PATH"], "is not supported: the interpreter is that of this machine"),
    ):
        done = refusal(shop, name, args, PATH=path)
        assert done.code == 1 and f"docker_image='pytorch/pytorch:2' {words}" in done.said


def test_an_image_of_its_own_is_used_in_a_container(shop: Workshop) -> None:
    need_podman()
    image = f"localhost/bench-test/{secrets.token_hex(4)}:1"
    podman("tag", IMAGE, image)
    try:
        commands = [
            "hostname; whoami; echo $ROW; printf wrong > answer.txt", "while [ ! -s /tmp/up ]; do sleep 0.05; done",
            "seq 100000; printf blue > answer.txt", "sleep 60",
        ]  # fmt: skip
        played = play(
            shop, "shell_pack", Model("bash", commands, "done"), docker_image=image, memory_gb=0.2,
            start_command="echo up > /tmp/up; sleep 1000", timeout_per_command_seconds=10,
        )  # fmt: skip
    finally:
        podman("rmi", image)
    first, second, third, last = told(played)
    assert first == "machine\nroot\nblue" and second == "(no output)"
    assert third.startswith("1\n2\n3\n") and third.endswith("99999\n100000") and "left out" in third
    assert last == "Error: Command timed out after 10s"
    assert only(played)["reward"] == 1.0


def test_a_container_that_fails_is_no_score_even_if_the_code_of_the_environment_catches_the_error(
    shop: Workshop,
) -> None:
    need_podman()
    image = f"localhost/bench-test/{secrets.token_hex(4)}:1"
    podman("tag", IMAGE, image)
    caught = """        import subprocess

        container = self._benches[state["sandbox_id"]]._machine.container
        subprocess.run(["podman", "rm", "--force", container], check=True)
        try:
            await self.bash("true", state["sandbox_id"], state["sandbox_state"])
        except vf.SandboxError:
            state["found"], state["ran"] = "blue", ["blue", "", 4]
"""
    start, _, end = SHELL.partition('        found = await self.bash("cat answer.txt"')
    source = start + caught + end[end.index("\n\n\ndef right") :]
    (shop.cwd.parent / "shell_pack" / "shell_pack.py").write_text(source)
    try:
        played = play(shop, "shell_pack", Model("bash", ["true"], "done"), docker_image=image, memory_gb=0.2)
    finally:
        podman("rmi", image)
    [result] = played.results
    assert result["outcome"] == "failed" and "the container of this rollout is gone" in result["message"]


def test_a_container_opens_neither_after_its_rollout_nor_longer_than_its_lifetime() -> None:
    need_podman()
    spec = MachineSpec(sandbox="podman", image=IMAGE, memory_mb=64)

    async def main() -> None:
        bench = ContainerBench(spec, None, 3.0)
        assert (await bench.command("echo a", 60)).stdout == "a\n"
        assert (await bench.command("sleep 300", 60)).timed_out
        assert "lifetime of 3 s" in (await bench.command("echo a", 60)).stderr
        closing = ContainerBench(spec, None, 60.0)
        opening = asyncio.ensure_future(closing.command("sleep 300", 60))
        await asyncio.sleep(0)
        await asyncio.gather(bench.close(), closing.close())
        for each in (opening, bench.command("echo a", 60)):
            with pytest.raises(SandboxError, match="closed"):
                await each

    asyncio.run(main())


@pytest.mark.parametrize("name", ["shell_pack", "python_pack"])
def test_without_a_sandbox_nothing_starts_and_what_to_install_is_said(shop: Workshop, name: str) -> None:
    done = refusal(shop, name, {}, PATH="/nowhere")
    assert done.code == 2
    assert "bubblewrap" in done.said and "install" in done.said


# python


def test_variables_stay_and_what_the_model_reads_has_the_classic_form(shop: Workshop) -> None:
    played = play(
        shop,
        "python_pack",
        Model(
            "python",
            ["x = 6\nopen('kept.txt', 'w').close()", "print('a')\nx * 7"],
            ["import sys\nprint('b')\nprint('c', file=sys.stderr)\nNone", "'s'", "1 / 0"],
            "42",
        ),
    )
    *told_, error = told(played)
    assert told_ == ["(no output)", "a\nOut[2]: 42", "b\nstderr:\nc", "Out[4]: 's'"]
    assert error.startswith("Traceback (most recent call last):\n") and error.endswith(
        "ZeroDivisionError: division by zero"
    )
    result = only(played)
    assert result["reward"] == 1.0
    assert (result["metrics"]["runs"], result["metrics"]["named"], result["metrics"]["python_calls"]) == (5.0, 1.0, 5.0)
    assert 0 < result["metrics"]["sandbox_ready_wait_time"] < result["metrics"]["python_ready_wait_time"] < 60
    assert "bash" not in json.dumps(played.tools) and "bash_calls" not in result["metrics"]


def test_the_packages_are_there_with_what_they_require(shop: Workshop) -> None:
    code = "import numpy, sympy, scipy.linalg, mpmath\nint(scipy.linalg.det(numpy.eye(2))), sympy.factorint(6)"
    played = play(shop, "python_pack", Model("python", [code], "42"))
    assert told(played) == ["Out[1]: (1, {2: 1, 3: 1})"]


def test_an_interpreter_that_is_lost_is_replaced_and_files_stay(shop: Workshop) -> None:
    played = play(
        shop, "python_pack",
        Model(
            "python", ["x = 1\nopen('kept.txt', 'w').close()", "while True: pass"], ["x"], ["import os\nos._exit(3)"],
            "42",
        ),
        timeout_per_command_seconds=2, pip_install_packages="",
    )  # fmt: skip
    _, slow, after, ended = told(played)
    fresh = "The interpreter starts afresh with the next call: all variables, functions and imports are gone."
    assert slow == f"Error: Command timed out after 2s\n{fresh}"
    assert after.endswith("NameError: name 'x' is not defined")
    assert ended == f"Error: The code ended the interpreter (exit code 3). {fresh}"
    assert only(played)["metrics"]["named"] == 1.0


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        ("numpy no-such-package>=2", "not installed: no-such-package>=2"),
        ("-q 'numpy<1'", "not installed: numpy<1"),
        ("./here", "'./here' is not a valid package requirement"),
    ],
)
def test_packages_that_are_not_installed_are_refused(shop: Workshop, packages: str, words: str) -> None:
    done = refusal(shop, "python_pack", {"pip_install_packages": packages})
    assert done.code == 1 and words in done.said
    if "installed" in words:
        assert "run: pip install" in done.said


# failures


BROKEN = SHELL.replace(
    '        state["kind"]',
    """        class Broken:
            name = "broken"

            async def open_session(self, *args):
                from harness.core.errors import SandboxError

                raise SandboxError("no room left")

        self._benches[state["sandbox_id"]]._sandbox = Broken()
        state["kind"]""",
)


@pytest.mark.parametrize("stop_errors", ["default", "none"])
def test_a_broken_sandbox_fails_the_rollout_and_is_no_score(shop: Workshop, stop_errors: str) -> None:
    source = BROKEN if stop_errors == "default" else BROKEN.replace("**options)\n", "stop_errors=[], **options)\n")
    (shop.cwd.parent / "shell_pack" / "shell_pack.py").write_text(source)
    played = play(shop, "shell_pack", Model("bash", ["echo hi"], "done"))
    [result] = played.results
    assert result["outcome"] == "failed"
    assert "no room left" in result["message"]
    assert [line["type"] for line in lines(played.run)].count("scored") == 0


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("sandbox_client.upload_bytes", "sandbox_client.upload_bytes is not supported"),
        ("with_retry", "ShellEnv.with_retry is not supported: it is for sandboxes of a remote provider"),
        ("sandbox_cliend", "'ShellEnv' object has no attribute 'sandbox_cliend'"),
    ],
)
def test_a_remote_attribute_says_that_it_is_one_and_nothing_lives_on(
    shop: Workshop, attribute: str, words: str
) -> None:
    source = SHELL.replace("sandbox_client.execute_command(state", f"{attribute}(state")
    mark = f"mark-{secrets.token_hex(8)}"
    (shop.cwd.parent / "shell_pack" / "shell_pack.py").write_text(source)
    live = f"setsid sh -c ': {mark}; echo up > up; sleep 600; true' &"
    start = f"{live} while [ ! -e up ]; do sleep 0.05; done; cat up"
    played = play(shop, "shell_pack", Model("bash", [start], "done"))
    [result] = played.results
    assert result["outcome"] == "failed"
    assert words in result["message"]
    assert told(played) == ["up"]
    assert eventually(lambda: marked(mark) == [])
