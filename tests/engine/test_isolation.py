"""An environment in processes of its own, seen from the engine: what becomes of a rollout whatever its process does,
and of a process whatever its environment does. Real processes; the model is the test's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import resource
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop
from dying import STRIKES, left_over
from engine_parts import until
from scripted_chat import ScriptedChat

from harness.core.errors import ConfigError, EnvironmentFault, EnvironmentLoadError, ModelError, SystemicError
from harness.core.keys import ExampleKeys
from harness.core.records import STATE_LOST, Failed, Generated, Item
from harness.core.types import Chat, JsonDict, ModelResponse, Usage
from harness.engine.executors import Finished
from harness.engine.executors.isolated import MAX_SHARED, IsolatedExecutor
from harness.engine.isolation.pool import MAX_FAILURES
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.isolation.spawned import Recipe, Spawned
from harness.engine.isolation.wire import IsolatedRunConfig, error_from_json, error_to_json
from harness.engine.load_environments import memory_bound
from harness.models.delays import Delay
from harness.settings.resolver import resolve
from harness.usercode.deadline import waiting

ODD = (
    STRIKES
    + """
from harness import JudgeRubric, MultiTurnEnv, Rubric, cleanup, teardown

class Odd(MultiTurnEnv):
    async def setup_state(self, state):
        do = state["info"].get("setup", "")
        if do == "memory":
            state["hoard"] = [bytearray(1 << 20) for _ in range(4096)]
        if do == "numpy":
            import numpy
            state["hoard"] = numpy.ones(1 << 29)
        if do == "child":
            code = "x = bytearray(1 << 30); print(len(x))"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            state["child"] = [done.returncode, done.stderr.strip().splitlines()[-1]]
        if do == "block":
            time.sleep(3600)
        if do == "objects":
            state["tool"] = object()
        if do == "cancel":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        strike(do)
        state["pid"] = os.getpid()
        state["secrets"] = [name for name, value in os.environ.items() if "canary" in value]

    async def env_response(self, messages, state):
        strike(state["info"].get("response", ""))
        return [{"role": "user", "content": "and?"}]

    @teardown
    async def close(self):
        if self.hangs:
            await asyncio.sleep(3600)

def live(state):
    strike(state["info"].get("reward", ""))
    return float(state["tool"] is not None) if "tool" in state else 1.0

def load_environment(rows=(), needs_live=False, max_turns=1, hangs=False, loads="", judge_var=""):
    if loads == "hang":
        time.sleep(3600)
    if loads == "lacks":
        ctypes.CDLL(None)._exit(86)  # as it ends when it cannot read its orders any more
    strike(loads)
    rows = [{"question": str(number), "info": info} for number, info in enumerate(rows)]
    made = Odd(dataset=rows, rubric=Rubric([live], needs_live_state=needs_live), max_turns=max_turns)
    made.hangs = hangs
    made.cleanup_timeout = 1.0
    if judge_var:
        there = {"judge_base_url": "http://127.0.0.1:9/v1", "judge_api_key_var": judge_var}
        made.add_rubric(JudgeRubric(judge_model="j", **there))
    return made
"""
)


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment's id: a path, which also marks its processes."""
    path = tmp_path / "odd_env.py"
    path.write_text(ODD)
    monkeypatch.setenv("MARK", str(tmp_path))
    return str(path)


def opened(before: set[str]) -> set[str]:
    """What is open, and was not before."""
    found: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing itself
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found - before


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in the kind of event loop that the product has."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        uvloop.run(test(**fixtures))

    return run


def recipe(env_id: str, *rows: JsonDict, memory_mb: int = -1, **more: Any) -> Recipe:
    names = {
        name: more.pop(name) for name in ("load_seconds", "silence", "overdue", "allowed", "hidden") if name in more
    }
    return Recipe(env_id, {"rows": list(rows), **more}, {}, "odd", memory_mb, **names)


@dataclass
class Way:
    """A run's way to a scripted model."""

    replies: tuple[object, ...] = ("yes",)
    model: str = "scripted"
    sampling_args: JsonDict = field(default_factory=dict[str, Any])
    open: int = 0
    chats: list[ScriptedChat] = field(default_factory=list[ScriptedChat])

    def delays(self) -> list[Delay]:
        return []

    def chat(self, item: Item) -> Chat:
        self.open += 1
        self.chats.append(ScriptedChat(self.replies))
        return self.chats[-1]

    def close(self, item: Item) -> None:
        self.open -= 1


@dataclass
class Case:
    """An environment, its executor, and its items."""

    environment: IsolatedEnvironment
    executor: IsolatedExecutor
    way: Way
    items: list[Item]

    async def make(self, *places: int) -> list[Generated | Failed]:
        """Make these rollouts side by side."""
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(self.executor.generate(self.items[place])) for place in places]
        return [task.result() for task in made]


@asynccontextmanager
async def case(
    made_of: Recipe, *, workers: int = 1, way: Way | None = None, terms: IsolatedRunConfig | None = None
) -> AsyncGenerator[Case]:
    environment = await asyncio.to_thread(IsolatedEnvironment, made_of, workers)
    way, keys = way or Way(), ExampleKeys()
    try:
        count = environment.row_count
        examples = [keys.example(await asyncio.to_thread(environment.row, index), index) for index in range(count)]
        items = [Item(f"key-{example.index}", example, 0) for example in examples]
        yield Case(environment, IsolatedExecutor(environment, way, terms or IsolatedRunConfig()), way, items)
        assert way.open == 0
    finally:
        await environment.teardown()


@in_loop
async def test_a_memory_hog_is_refused_memory_and_costs_its_rollout_alone(odd: str) -> None:
    rows = ({"setup": "memory"}, {"setup": "numpy"}, {"setup": "child"}, {})
    async with case(recipe(odd, *rows, memory_mb=384)) as run:
        objects, numpy, child, fine = await run.make(0, 1, 2, 3)
    assert isinstance(objects, Failed) and isinstance(numpy, Failed)
    assert "MemoryError" in objects.error and "odd_env.py" in objects.error
    assert "Unable to allocate" in numpy.error
    assert isinstance(child, Generated) and child.state["child"] == [1, "MemoryError"]
    assert isinstance(fine, Generated)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_a_bound_that_leaves_no_room_is_refused_with_the_least_that_does(odd: str) -> None:
    IsolatedEnvironment(recipe(odd, {}), 1).pool.kill()  # compiles modules, which takes more memory than loading them
    with pytest.raises(
        EnvironmentLoadError, match=r"worker_memory_mb = 16 is too little: .* set it to at least (\d+)"
    ) as caught:
        IsolatedEnvironment(recipe(odd, {}, memory_mb=16), 1)
    least = int(re.findall(r"set it to at least (\d+)", str(caught.value))[0])
    environment = IsolatedEnvironment(recipe(odd, {}, memory_mb=least + 8), 1)  # which is not the same every time
    environment.pool.kill()


def test_a_process_that_cannot_go_on_without_more_memory_says_which_bound_it_has(odd: str) -> None:
    with pytest.raises(
        EnvironmentLoadError, match=r"of odd ran out of memory \(worker_memory_mb = 900\) while loading$"
    ):
        IsolatedEnvironment(recipe(odd, {}, memory_mb=900, loads="lacks"), 1)


def test_outside_linux_a_memory_bound_that_was_asked_for_is_refused() -> None:
    def bound(platform: str, **flags: object) -> int:
        [run] = resolve("reverse-text", {"model": "reference/oracle", "workers": 1, **flags}).runs
        return memory_bound(run, platform)

    assert (bound("linux"), bound("darwin"), bound("darwin", worker_memory_mb=-1)) == (4096, -1, -1)
    with pytest.raises(ConfigError, match=r"^--worker-memory-mb 512: a memory limit works only on Linux"):
        bound("darwin", worker_memory_mb=512)


@in_loop
async def test_no_process_that_carries_anything_out_sees_the_key_of_a_judge(
    odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who judges says the environment itself, when it is loaded."""
    for name in ("QUIET", "PLAIN"):
        monkeypatch.setenv(name, f"canary-{name}-0123456789")
    async with case(recipe(odd, {}, {}, judge_var="QUIET"), workers=2) as run:
        made = await run.make(0, 1)
    assert [isinstance(each, Generated) and each.state["secrets"] for each in made] == [["PLAIN"], ["PLAIN"]]


@in_loop
async def test_keys_are_out_of_reach_unless_they_are_let_through(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_API_KEY", "HF_TOKEN", "LET_THROUGH_KEY", "PLAIN", "HELD"):
        monkeypatch.setenv(name, f"canary-{name}-0123456789")
    named = recipe(odd, {}, allowed=frozenset({"LET_THROUGH_KEY"}), hidden=frozenset({"HELD"}))
    async with case(named) as run:
        [record] = await run.make(0)
        assert isinstance(record, Generated)
        environ = await asyncio.to_thread(Path(f"/proc/{record.state['pid']}/environ").read_bytes)
    assert sorted(record.state["secrets"]) == ["LET_THROUGH_KEY", "PLAIN"]
    assert [name for name in ("SOME_API_KEY", "HF_TOKEN", "HELD") if f"canary-{name}".encode() in environ] == []


@dataclass
class Holding(Way):
    """The first example is answered when it is released, all others at once, for three tokens a request."""

    asked: list[str] = field(default_factory=list[str])
    release: asyncio.Event = field(default_factory=asyncio.Event)

    def chat(self, item: Item) -> Chat:
        self.open += 1
        return _Held(["yes"], way=self)


@dataclass
class _Held(ScriptedChat):
    way: Holding = field(default_factory=Holding)

    async def __call__(self, prompt: Any, **more: Any) -> ModelResponse:
        words = str(prompt[-1]["content"])
        self.way.asked.append(words)
        if words == "0":
            await self.way.release.wait()
        return ModelResponse({"role": "assistant", "content": "yes"}, "stop", usage=Usage(3, 2, requests=1))


@pytest.mark.slow
@in_loop
async def test_what_waits_for_its_model_is_not_what_killed_the_process(odd: str) -> None:
    """However often that happens. What was paid for replies that are lost is counted."""
    way = Holding()
    dying = [{"response": "kill"}] * (MAX_SHARED + 1)
    async with case(recipe(odd, {}, *dying, max_turns=2), way=way) as run:
        async with asyncio.TaskGroup() as tasks:
            innocent = tasks.create_task(run.executor.generate(run.items[0]))
            for number in range(1, len(dying) + 1):
                made_again = min(number, MAX_SHARED + 1)
                await until(lambda: way.asked.count("0") == made_again, "the innocent one waits")  # noqa: B023
                [failed] = await run.make(number)
                assert isinstance(failed, Failed) and failed.reason == "worker_died" and not failed.retryable
                words = "was killed by SIGKILL; this happened in each of 2 attempts at this rollout"
                assert failed.error == f"the process of odd {words}"
                usage = failed.usage
                assert (failed.attempts, usage.requests, usage.input_tokens) == (2, 2, 6)  # paid for both times
            way.release.set()
        note = run.environment.pool.note()
    made = innocent.result()
    assert isinstance(made, Generated) and (made.attempts, made.usage.requests) == (1 + MAX_SHARED, 2)
    assert note == f"{2 * len(dying)} processes were replaced: one was killed by SIGKILL ({2 * len(dying)} times)"


@in_loop
async def test_live_states_are_scored_where_they_are_and_lost_with_their_process(odd: str) -> None:
    rows = ({"setup": "objects"}, {"setup": "objects"}, {"reward": "kill"})
    async with case(recipe(odd, *rows, needs_live=True), workers=1) as run:
        first, second, third = await run.make(0, 1, 2)
        assert all(isinstance(each, Generated) for each in (first, second, third))
        finished = [Finished(item.example, each) for item, each in zip(run.items, (first, second, third), strict=True)]  # type: ignore[arg-type]
        [scored] = await run.executor.score([finished[0]])
        assert (scored.outcome, scored.reward) == ("scored", 1.0)
        [died] = await run.executor.score([finished[2]])
        assert (died.outcome, died.reasons) == ("unscored", {"*": STATE_LOST})  # another process cannot tell
        [lost] = await run.executor.score([finished[1]])
        assert (lost.outcome, lost.reasons) == ("unscored", {"*": STATE_LOST})


@in_loop
async def test_a_process_whose_rollouts_wait_for_scores_gets_no_more_than_another(odd: str) -> None:
    async with case(recipe(odd, {}, {}, {}, {}), workers=2) as run:
        made = [record for number in range(4) for record in await run.make(number)]
        pids = [record.state["pid"] for record in made if isinstance(record, Generated)]
        assert pids[:2] == pids[2:]
        assert pids[0] != pids[1]
        await run.executor.score([Finished(run.items[1].example, made[1])])  # type: ignore[arg-type]
        run.executor.forget(run.items[3].key)
        again = [record for number in (1, 3) for record in await run.make(number)]
        assert [record.state["pid"] for record in again if isinstance(record, Generated)] == [pids[1]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("terms", "bounds", "seconds"), [(None, {"silence": 1.0}, 2), (IsolatedRunConfig(timeout=3.0), {"overdue": 0.5}, 4)]
)
@in_loop
async def test_a_blocked_loop_is_ended_with_and_without_a_timeout(
    odd: str, terms: IsolatedRunConfig | None, bounds: dict[str, Any], seconds: int
) -> None:
    async with case(recipe(odd, {"setup": "block"}, {}, **bounds), terms=terms) as run:
        blocked, fine = await run.make(0, 1)
    assert isinstance(blocked, Failed) and blocked.reason == "worker_hung"
    assert f"was ended because it did not respond for {seconds} s (setup_state (odd_env.py:" in blocked.error
    assert isinstance(fine, Generated)


@in_loop
async def test_code_that_cancels_its_own_task_fails_its_rollout(odd: str) -> None:
    async with case(recipe(odd, {"setup": "cancel"}, {})) as run:
        cancelled, fine = await run.make(0, 1)
    assert isinstance(cancelled, Failed) and cancelled.reason == "environment_error"
    assert cancelled.error.startswith("the environment's code cancelled the task that runs it")
    assert isinstance(fine, Generated)


@in_loop
async def test_what_is_waited_for_in_our_own_queue_is_not_the_rollouts_time(odd: str) -> None:
    """The model's slot comes after the time limit; its answer, at once. Another's never comes."""

    class Queued(ScriptedChat):
        async def __call__(self, prompt: Any, **more: Any) -> ModelResponse:
            with waiting():
                await asyncio.sleep(3.0)
            return await super().__call__(prompt, **more)

    class Slow(ScriptedChat):
        async def __call__(self, prompt: Any, **more: Any) -> ModelResponse:
            await asyncio.Event().wait()
            raise AssertionError("it was given up")

    class OddWay(Way):
        def chat(self, item: Item) -> Chat:
            self.open += 1
            return (Queued if item.example.index == 0 else Slow)(["yes"])

    async with case(recipe(odd, {}, {}), way=OddWay(), terms=IsolatedRunConfig(timeout=2.0)) as run:
        queued, slow = await run.make(0, 1)
    assert isinstance(queued, Generated) and queued.timing.waiting > 2.9
    assert isinstance(slow, Failed) and (slow.reason, slow.retryable) == ("timeout", True)


@in_loop
async def test_cancelling_a_rollout_cancels_it_over_there(odd: str) -> None:
    never = asyncio.Event()

    class Waiting(ScriptedChat):
        async def __call__(self, prompt: Any, **more: Any) -> ModelResponse:
            self.asked.append(prompt)
            await never.wait()
            raise AssertionError

    class WaitingWay(Way):
        def chat(self, item: Item) -> Chat:
            self.open += 1
            self.chats.append(Waiting(["yes"]))
            return self.chats[-1]

    async with case(recipe(odd, {}), way=WaitingWay()) as run:
        task = asyncio.create_task(run.executor.generate(run.items[0]))
        await until(lambda: run.way.chats and run.way.chats[0].asked, "it asks")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert run.environment.pool.note() == ""


@in_loop
async def test_an_unusable_endpoint_crosses_over_and_back_as_the_same_error(odd: str) -> None:
    dead = SystemicError("the key is not accepted", status=401, reason="auth")
    async with case(recipe(odd, {}), way=Way((dead,))) as run:
        with pytest.raises(SystemicError) as caught:
            await run.executor.generate(run.items[0])
        assert (str(caught.value), caught.value.status, caught.value.reason) == (str(dead), 401, "auth")
    failing = ModelError("gone for good", status=500, retryable=True, reason="server_error")
    async with case(recipe(odd, {}), way=Way((failing,))) as run:
        [record] = await run.make(0)
    assert isinstance(record, Failed)
    assert (record.reason, record.error, record.retryable) == ("server_error", "gone for good", True)


@pytest.mark.slow
@in_loop
async def test_ten_rollouts_in_a_row_that_end_their_process_end_the_run(odd: str) -> None:
    rows = [{"setup": "leave"} for _ in range(MAX_FAILURES + 2)]
    async with case(recipe(odd, *rows)) as run:
        for place in range(MAX_FAILURES):
            [record] = await run.make(place)
            assert isinstance(record, Failed)
        with pytest.raises(EnvironmentFault) as caught:
            await run.executor.generate(run.items[MAX_FAILURES])
        assert str(caught.value) == (  # what they died of is in the note, which stands behind it
            "processes of odd died 10 times in a row without finishing a rollout; run a single rollout "
            "(num_examples = 1, rollouts_per_example = 1) to find the cause"
        )


@in_loop
async def test_an_environment_that_hangs_while_it_loads_or_tears_down_is_ended(
    odd: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = recipe(odd, loads="hang", load_seconds=1.5)
    with pytest.raises(
        EnvironmentLoadError,
        match=r"'odd': the process of this environment was ended because loading took longer than 1.5 s",
    ):
        await asyncio.to_thread(IsolatedEnvironment, slow, 1)
    async with case(recipe(odd, {}, hangs=True)) as run:
        await run.make(0)
    assert "@teardown close raised TimeoutError" in caplog.text
    assert left_over(str(tmp_path)) == []


@pytest.mark.slow
@in_loop
async def test_nothing_is_left_of_many_runs(odd: str, tmp_path: Path) -> None:
    """No descriptor, no thread, no task, no process; also of processes that died."""

    async def once(*rows: JsonDict) -> None:
        async with case(recipe(odd, *rows)) as run:
            await run.make(*range(len(rows)))

    def alone() -> bool:
        return asyncio.all_tasks() == {asyncio.current_task()}

    await once({})  # what is imported, and opened, once
    await until(alone, "its tasks are done")
    gc.collect()
    fds = opened(set())
    for _ in range(4):
        await once({"setup": "kill"}, {})
    gc.collect()
    # Transports close, and tasks end, in a turn of their own.
    await until(lambda: alone() and not opened(fds), "all are closed")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("bench-printed")] == []
    assert left_over(str(tmp_path)) == []


def test_a_process_for_which_no_descriptor_is_left_is_refused_in_words_and_leaves_none(odd: str) -> None:
    fds, soft, hard = opened(set()), *resource.getrlimit(resource.RLIMIT_NOFILE)
    for few in range(1, 8):
        first = os.dup(0)
        os.close(first)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first + few, hard))
        try:
            with pytest.raises(
                EnvironmentLoadError, match="process of this environment cannot be started: Too many open files"
            ):
                Spawned(recipe(odd))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not opened(fds)


class _Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("mute")


def test_an_error_crosses_over_in_words_that_say_where_it_is_from() -> None:
    def fail(error: Exception) -> None:
        raise error

    for error, words in ((KeyError("answer"), "KeyError: 'answer'"), (_Mute(), "_Mute: its __str__ raised ValueError")):
        with contextlib.suppress(type(error)):
            fail(error)
        told = error_from_json(error_to_json(error))
        assert type(told) is EnvironmentFault
        assert re.fullmatch(rf"{re.escape(words)} \(in fail, test_isolation\.py:\d+\)", str(told))


def test_an_environment_that_nobody_plays_ends_when_it_is_forgotten(odd: str, tmp_path: Path) -> None:
    environment = IsolatedEnvironment(recipe(odd, {}), 2)
    assert environment.row_count == 1 and len(left_over(str(tmp_path))) == 2  # a keeper, and what it keeps
    del environment
    gc.collect()
    assert left_over(str(tmp_path)) == []
