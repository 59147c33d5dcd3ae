"""Environments with a machine for each rollout: its tools, its life, and that a machine that fails is never a score."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from containers import IMAGE, exists, need_podman, podman
from sandboxes import marked, sandbox
from scripted_chat import ScriptedChat, example_of

from harness import EnvironmentFault, MachineEnv, Rubric, State, evaluate
from harness.core.errors import ConfigError, LimitReached, SandboxError, SandboxMissing
from harness.core.types import JsonDict, Message
from harness.sandbox import Machine, MachineSpec
from harness.sandbox.container_machine import ContainerMachine

ROWS = [{"question": "Write 42 to answer.txt."}]
WAYS = ["bubblewrap", "podman"]


def spec(way: str) -> MachineSpec:
    if way == "podman":
        need_podman()
        return MachineSpec(sandbox=way, image=IMAGE, memory_mb=128)
    sandbox(way)
    return MachineSpec(sandbox=way)


def call(name: str, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def bash(command: str) -> Message:
    return call("bash", command=command)


async def solved(state: State) -> float:
    return float(state["found"] == "42")


class Answers(MachineEnv):
    """The model writes a number to a file."""

    async def setup_machine(self, machine: Machine, state: State) -> None:
        await machine.write_file("task.txt", "Write 42 to answer.txt.\n")

    async def verify(self, machine: Machine, state: State) -> None:
        state["found"] = (await machine.exec(["cat", "answer.txt"])).stdout.strip()

    def reference_reply(self, example: Any, messages: Any) -> Message | str:
        return "done" if messages[-1]["role"] == "tool" else bash("echo 42 > answer.txt")


def answers(way: str = "podman", kind: type[Answers] = Answers, **options: Any) -> Answers:
    return kind(spec(way), dataset=ROWS, rubric=Rubric([solved]), **options)


def play(env: MachineEnv, *replies: object) -> State:
    state = State.begin(example_of(env.row(0).prompt), 0, "m", {})
    asyncio.run(env.rollout(state, ScriptedChat([*replies, "done"])))
    return state


def told(state: State) -> list[str]:
    return [message["content"] for message in state["completion"] if message["role"] == "tool"]


@pytest.mark.parametrize("way", WAYS)
def test_a_model_works_on_its_machine(way: str) -> None:
    env = answers(way, machine_tools=("bash", "python", "edit"), command_timeout=5)
    state = play(
        env,
        bash("cat task.txt; cd /usr; x=1; exit 3"),
        bash('pwd | grep -c usr; echo "[$x]" >&2'),
        bash("sleep 100"),
        call("python", code="print(6 * 7)\n"),
        call("python", code="1 / 0"),
        call("edit", command="create", path="a.sh", file_text="one\ntwo\n"),
        call("edit", command="str_replace", path="a.sh", old_str="two", new_str="2"),
        call("edit", command="insert", path="a.sh", insert_line=1, new_str="1.5"),
        call("edit", command="view", path="a.sh"),
        call("edit", command="str_replace", path="a.sh", old_str="3", new_str=""),
        call("edit", command="insert", path="a.sh", insert_line=4, new_str=""),
        call("edit", command="view", path="none"),
        call("edit", command="view", path="a.sh", machine="x"),
        bash("chmod 711 a.sh; true"),
        call("edit", command="str_replace", path="a.sh", old_str="one", new_str="42"),
        bash("stat -c %a a.sh; head -1 a.sh > answer.txt"),
    )
    said = told(state)
    assert said[:4] == [
        "Write 42 to answer.txt.\n[exit code 3]", "0\n[]", "[killed: it took longer than 5 s]", "42",
    ]  # fmt: skip
    assert said[4].endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert said[5:8] == ["a.sh has been written", "a.sh has been changed", "a.sh has been changed"]
    assert said[8] == "     1\tone\n     2\t1.5\n     3\t2\n"
    assert said[9] == "old_str occurs 0 times in a.sh; it must occur exactly once"
    assert said[10] == "insert_line must be from 0 to 3, the number of lines of a.sh"
    assert said[11].startswith("none") and "machine" in said[12]
    assert said[13:] == ["(no output)", "a.sh has been changed", "711"]
    assert (state["found"], state.machine) == ("42", None)


def test_tools_of_the_author_get_the_machine_and_the_model_does_not_see_it() -> None:
    async def count(word: str, machine: Machine, timeout: float) -> str:
        """Count words.

        Args:
            word: The word.
            machine: The rollout's machine.
            timeout: Seconds.
        """
        return (await machine.exec(["grep", "-c", word, "task.txt"], timeout=timeout)).stdout

    def plain(timeout: int) -> int:
        return timeout

    env = answers("bubblewrap", tools=[count, plain])
    shown = {tool["function"]["name"]: list(tool["function"]["parameters"]["properties"]) for tool in env.tool_defs}
    assert shown["bash"] == ["command"] and shown["count"] == ["word"] and shown["plain"] == ["timeout"]
    assert told(play(env, call("count", word="Write"), call("plain", timeout=3))) == ["1\n", "3"]


def test_a_limit_of_the_rollout_ends_it_with_its_verification() -> None:
    env = answers("bubblewrap")
    with pytest.raises(LimitReached):
        play(env, LimitReached("no more", reason="message_limit"))
    state = State.begin(example_of(env.row(0).prompt), 0, "m", {})
    chat = ScriptedChat([bash("echo 42 > answer.txt"), LimitReached("no more", reason="message_limit")])
    with pytest.raises(LimitReached):
        asyncio.run(env.rollout(state, chat))
    assert state["found"] == "42"


class Breaks(Answers):
    """Its container is removed while the rollout runs."""

    when = "verify"
    names: list[str]

    async def setup_machine(self, machine: Machine, state: State) -> None:
        assert isinstance(machine, ContainerMachine)
        self.names.append(machine.container)
        if self.when == "setup":
            await self.break_it(machine)

    async def verify(self, machine: Machine, state: State) -> None:
        if self.when == "verify":
            await self.break_it(machine)
        if self.when == "swallows":
            await self.break_it(machine)
            with suppress(SandboxError):
                await machine.exec(["true"])
            state["found"] = "42"
            return
        if self.when == "raises":
            raise OSError("the disk is full")
        await super().verify(machine, state)

    async def break_it(self, machine: Machine) -> None:
        podman("rm", "--force", self.names[-1])


@pytest.mark.parametrize(
    ("when", "limit"),
    [("setup", None), ("verify", None), ("verify", 1), ("swallows", None), ("raises", 1), ("never", 1)],
)
def test_a_machine_that_fails_leaves_the_rollout_without_a_score(
    when: str, limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = answers(kind=Breaks)
    assert isinstance(env, Breaks)
    env.when, env.names = when, []
    [run] = evaluate(env, "reference/oracle", rollouts_per_example=1, max_retries=0, message_limit=limit)
    assert run.path is not None
    summary: JsonDict = json.loads((Path(run.path) / "summary.json").read_text())
    if when == "never":  # the limit has ended the rollout after the file was written
        assert (summary["scored"], summary["reward"]["mean"]) == (1, 1.0)
    else:
        assert (summary["scored"], summary["reward"]["mean"]) == (0, None)
        failed = json.loads((Path(run.path) / "journal.jsonl").read_text().splitlines()[-1])
        assert ("the disk is full" if when == "raises" else "SandboxError") in json.dumps(failed)
    assert [name for name in env.names if exists(name)] == []


def test_a_wrong_name_fails_before_the_first_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox()
    with pytest.raises(EnvironmentFault, match="machine_tools='browser' is unknown; there are bash, python, edit"):
        MachineEnv(machine_tools=["browser"], dataset=ROWS)
    with pytest.raises(ConfigError, match="must be a folder with a Dockerfile"):
        MachineEnv(MachineSpec(image=tmp_path), dataset=ROWS)
    with pytest.raises(ConfigError, match=r"MachineSpec\(sandbox='docker1'\) is unknown"):
        MachineEnv(MachineSpec(sandbox="docker1"), dataset=ROWS)
    with pytest.raises(ConfigError, match=r"image='debian'.*needs a container: bubblewrap"):
        MachineEnv(MachineSpec(sandbox="bubblewrap", image="debian"), dataset=ROWS)
    from harness.sandbox.find import find_engine

    monkeypatch.setenv("PATH", str(tmp_path))
    find_engine.cache_clear()
    try:
        with pytest.raises(SandboxMissing, match=r"docker is not installed; podman is not installed.*apt-get install"):
            MachineEnv(MachineSpec(image="debian"), dataset=ROWS)
    finally:
        find_engine.cache_clear()


def test_texts_that_no_program_can_have_are_the_models_mistake() -> None:
    state = play(
        answers("bubblewrap", machine_tools=("bash", "python", "edit")),
        bash("printf 'a\0b'"),
        bash("x" * 140_000),
        call("python", code="print('\ud800')"),
        bash("echo \ud800"),
        call("edit", command="create", path="x", file_text="\ud800"),
        call("edit", command="view", path=""),
        call("edit", command="create", path="a\0b", file_text="x"),
        bash("echo 42 >answer.txt"),
    )
    said = told(state)
    assert "NUL" in said[0] and "131,072 bytes" in said[1]
    assert all("surrogates not allowed" in each for each in said[2:5])
    assert said[5:7] == ["path is not the path of a file"] * 2 and state["found"] == "42"


def test_edit_has_the_rights_of_the_containers_user() -> None:
    need_podman()
    env = Answers(MachineSpec(sandbox="podman", image=IMAGE, user="games", folder="/tmp"), dataset=ROWS)
    state = play(
        env,
        call("edit", command="create", path="/etc/x", file_text="x"),
        call("edit", command="view", path="/etc/shadow"),
        call("edit", command="create", path="mine", file_text="x" * 2_000_000),
        bash("stat -c '%U %a %s' mine"),
        call("edit", command="view", path="mine"),
        call("edit", command="view", path="/dev/null"),
        bash("printf 'a\\0\\377' >raw"),
        call("edit", command="view", path="raw"),
        bash("mkfifo pipe; printf 'a\\fb\\r\\nc' >odd"),
        call("edit", command="create", path="pipe", file_text="x"),
        call("edit", command="insert", path="odd", insert_line=1, new_str="new"),
        bash("od -An -c odd"),
    )
    said = told(state)
    assert "cannot be written in the machine: not a regular file" in said[9]
    assert said[11].split() == [*"a", r"\f", *"b", r"\r", r"\n", *"new", r"\n", *"c"]
    assert "cannot be written" in said[0] and "not a file that the user may read" in said[1]
    assert said[3] == "games 644 2000000" and "more than 1,048,576 bytes" in said[4]
    assert "not a file" in said[5] and said[7] == "     1\ta\0\ufffd"


class Verified(Answers):
    """Its tool leaves a call in progress, which the turns do not wait for."""

    def __init__(self, mark: str) -> None:
        super().__init__(spec("podman"), tools=[self.leave], dataset=ROWS)
        self.mark = mark
        self.calls: list[asyncio.Task[object]] = []

    async def leave(self, machine: Machine) -> str:
        """Start a program.

        Args:
            machine: The rollout's machine.
        """
        script = f"until grep -aq '[s]leep.{self.mark}' /proc/[0-9]*/cmdline; do :; done"
        self.calls.append(asyncio.create_task(machine.exec(["sleep", self.mark], timeout=300)))
        return (await machine.exec(["sh", "-c", script])).outcome

    async def setup_machine(self, machine: Machine, state: State) -> None:
        await machine.restart()

    async def verify(self, machine: Machine, state: State) -> None:
        assert all(call.cancelled() for call in self.calls) and marked(f"sleep\0{self.mark}") == []
        with pytest.raises(SandboxError, match="the turns of this rollout are over"):
            await state.machine.exec(["true"])
        state["found"] = (await machine.exec(["echo", "works"])).stdout


def test_programs_that_the_turns_have_left_have_ended_before_the_machine_is_verified() -> None:
    state = play(Verified(f"{secrets.randbelow(10**9)}.25"), call("leave"))
    assert (told(state), state["found"], state["machine_restarts"]) == (["exited"], "works\n", 1)
