"""The environment: an agent works on each task in a container of its own, which the task's tests then verify."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from harness.agents.loading import LoadedAgent
from harness.agents.outcome import failure_of
from harness.agents.run import AgentOptions, AgentRun
from harness.agents.schemas import RolloutRequest
from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.core.keys import digest, hash_files
from harness.core.records import Example
from harness.core.redact import redactor
from harness.core.state import State, own
from harness.core.types import JsonDict, Message, Messages, Prompt
from harness.envs.hooks import stop
from harness.envs.machine_env import MachineEnv
from harness.envs.tool_env import called_tools, tool_message
from harness.plugins.harbor.task_file import HarborTask
from harness.plugins.harbor.verifier import AGENT_LOGS, VerifierRubric, prepare, run_script, verify
from harness.reference.policies import is_reference
from harness.sandbox.container_machine import ContainerMachine
from harness.sandbox.containers import Containers
from harness.sandbox.find import ENGINES, find_machines
from harness.sandbox.machine import Machine, MachineSpec
from harness.sandbox.user_machine import UserMachine
from harness.usercode.deadline import Deadline, waiting
from harness.usercode.threads import offload

logger = logging.getLogger(__name__)

PROMPT = (
    "You are given a task in a Linux container. Work on it with the tools bash and edit. Call submit when the task is "
    "complete. Questions are not answered."
)
"""The system prompt of bench's own agent."""

SUBMIT = "submit"

SOLUTION = "play_solution"
"""Name of the call with which the reference policy plays the task's solution. It is not offered to models, and is
obeyed only if a reference model sends it with the hash of the task's files."""

_BACKGROUND = '"$@" >/dev/null 2>&1 </dev/null &'

_WAIT = ("sh", "-c", "sleep infinity")
"""The command of containers in this format, which entry points get as their arguments."""

_PROCESSES = 2048
_NO_LIMIT = 1e6


async def submit() -> str:
    """End your work on the task. Call this when it is complete."""
    return "submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborOptions:
    """How tasks run; see `loader.load_environment`."""

    sandbox: str = "auto"
    images: Mapping[str, str] = field(default_factory=dict[str, str])
    build: bool = False
    network: bool = True
    limit_storage: bool = True
    pass_env: frozenset[str] = frozenset()
    max_turns: int = 100
    command_timeout: float = 300.0
    containers: int = 4
    agent: LoadedAgent | None = None
    logs: Path | None = None

    def __post_init__(self) -> None:
        for name, switch in {"build": self.build, "network": self.network, "limit_storage": self.limit_storage}.items():
            if switch not in (True, False):
                raise ConfigError(f"{name} must be true or false, not {switch!r}")
        if self.sandbox not in ("auto", *ENGINES):
            raise ConfigError(f"sandbox={self.sandbox!r}: tasks need a container: 'auto', 'docker' or 'podman'")
        seconds, containers = cast(object, self.command_timeout), cast(object, self.containers)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise ConfigError(f"command_timeout must be a number above 0, not {seconds!r}")
        if isinstance(containers, bool) or not isinstance(containers, int) or containers < 1:
            raise ConfigError(f"containers must be a whole number above 0, not {containers!r}")
        images = cast(object, self.images)
        pairs = cast("Mapping[object, object]", images).items() if isinstance(images, Mapping) else [(None, None)]
        if not all(isinstance(each, str) for pair in pairs for each in pair):
            raise ConfigError(f"images must be a table of names of images, not {images!r}")


class HarborEnv(MachineEnv):
    """Tasks in the Harbor format.

    Args:
        tasks: The tasks, one row each.
        options: How they run.
        commit: The commit of their git repository, if they have one.

    Raises:
        SandboxMissing: neither docker nor podman works here.
        ConfigError: a task needs variables of this computer that it does not get.
    """

    neutral_args: ClassVar[frozenset[str]] = frozenset({"containers", "logs"})

    def __init__(self, tasks: Sequence[HarborTask], options: HarborOptions, commit: str | None = None) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._options = options
        self._commit = commit
        for task in tasks:
            for table in ("environment", "verifier", "solution"):
                task.variables(table, options.pass_env)
        # Recorded output of scripts may show them: those that look like keys are redacted, under any name.
        redactor.add_named({f"{name}_API_KEY": os.environ.get(name, "") for name in options.pass_env})
        if wanting := [task.name for task in tasks if _wants_more(task)]:
            logger.warning(
                "%d of %d tasks, such as %s, ask for more processors than the %d of this computer: they get all",
                len(wanting), len(tasks), wanting[0], os.cpu_count() or 1,
            )  # fmt: skip
        self._limits_disk: bool | None = None if options.limit_storage else False
        self._entry_points: dict[str, list[str]] = {}
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        super().__init__(
            self._spec_of(tasks[0]),
            tools=[submit],
            command_timeout=options.command_timeout,
            max_turns=options.max_turns,
            dataset=[
                {
                    "example_id": task.name,
                    "question": task.instruction,
                    "info": {"task": task.name, "hash": task.digest},
                }
                for task in tasks
            ],
            system_prompt=PROMPT if options.agent is None else None,
            rubric=VerifierRubric(),
        )

    @property
    def fingerprint(self) -> JsonDict:
        """Hashes of all tasks, the commit of their repository, and the hash of the agent's code."""
        hashes = {name: task.digest for name, task in self._tasks.items()}
        found: JsonDict = {"tasks": hashes if len(hashes) <= 20 else digest(hashes)}
        if self._commit is not None:
            found["commit"] = self._commit
        if self._options.agent is not None:
            found["agent_source"] = hash_files(self._options.agent.files)
        return found

    def task_of(self, state: State) -> HarborTask:
        """The task of a rollout."""
        return self._tasks[state["info"]["task"]]

    # The machine

    def machine_spec(self, state: State) -> MachineSpec:
        """The container of the rollout's task."""
        return self._spec_of(self.task_of(state))

    def _spec_of(self, task: HarborTask) -> MachineSpec:
        options = self._options
        image = task.build_folder if options.build or task.docker_image is None else task.docker_image
        return MachineSpec(
            sandbox=options.sandbox,
            image=image or task.docker_image,
            images=options.images,
            network=task.network and options.network,
            cpus=None if _wants_more(task) else task.cpus,
            memory_mb=task.memory_mb,
            processes=_PROCESSES,
            disk_mb=task.storage_mb if self._limits_disk else None,
            env=task.variables("environment", options.pass_env),
            folder=task.workdir,
            build_seconds=task.build_seconds,
        )

    async def play(self, state: State) -> None:
        """Run the agent and the tests on a new machine."""
        await offload.run(self.task_of(state).require_unchanged)
        gate = self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._options.containers))
        with waiting():
            await gate.acquire()
        try:
            if self.task_of(state).storage_mb is not None and self._limits_disk is None:
                self._limits_disk = await self._can_limit_disk()
            await super().play(state)
        finally:
            gate.release()

    async def _can_limit_disk(self) -> bool:
        machines = find_machines(self.machine)
        assert isinstance(machines, Containers)
        problem = await machines.engine.refuses_disk_limit()
        if problem and self._limits_disk is None:
            self._limits_disk = False
            logger.warning(
                "storage_mb of the tasks is not kept: %s cannot limit the disk space of containers here (%s); "
                "limit_storage = false in env_args accepts this without a warning", machines.engine.name, problem,
            )  # fmt: skip
        return not problem

    async def setup_machine(self, machine: Machine, state: State) -> None:
        """Make the folders of logs, and start the image's entry point; the agent then has the rights of its user."""
        if problem := await prepare(machine, self.task_of(state)):
            raise EnvironmentFault(f"the container of {self.task_of(state).name} cannot be prepared: {problem}")
        await self._start_entry_point(machine, self.task_of(state))
        state.machine = UserMachine(machine, self.task_of(state).agent_user)

    async def _start_entry_point(self, machine: Machine, task: HarborTask) -> None:
        if entry := await self._entry_point(machine, task):
            await machine.exec(["/bin/sh", "-c", _BACKGROUND, "sh", *entry, *_WAIT])

    async def _entry_point(self, machine: Machine, task: HarborTask) -> list[str]:
        """The image's ENTRYPOINT, which may start services; a machine does not run it by itself."""
        if task.name not in self._entry_points and isinstance(machine, ContainerMachine):
            engine = machine.engine
            image = await engine.call("inspect", "--type", "container", "--format", "{{.Image}}", machine.container)
            name = image.output.decode().strip()
            found = await engine.call("image", "inspect", "--format", "{{json .Config.Entrypoint}}", name)
            if image.code or found.code:
                raise SandboxError(
                    f"{engine.name} cannot tell the entry point of the image of {task.name}: {found.error}"
                )
            self._entry_points[task.name] = json.loads(found.output) or []
        return self._entry_points.get(task.name, [])

    # The agent

    async def take_turns(self, state: State) -> None:
        """Run the agent until it ends or its time is up; then the rollout is verified, too."""
        limit = Deadline(self.task_of(state).agent_seconds)
        try:
            with limit:
                await (super().take_turns(state) if self._options.agent is None else self._run_agent(state))
        except TimeoutError:
            if not limit.expired():
                raise
            state["is_completed"], state["stop_condition"] = True, "agent_timeout"

    async def _run_agent(self, state: State) -> None:
        loaded = self._options.agent
        assert loaded is not None
        state.transcript, state.start = list(state["prompt"]), len(state["prompt"])
        request = RolloutRequest(
            rollout_id=f"harbor-{state['info']['task']}-{state['rollout_index']}",
            server_url="http://local-rollout.local",
            messages=state["prompt"],
            completion_params=own(state["sampling_args"]),
            max_turns=self._options.max_turns,
            metadata=own(state["info"]),
        )
        run = AgentRun(loaded.agent, state, partial(self.get_model_response, state), AgentOptions())
        try:
            await run.play(request)
        except Exception as error:
            failure = failure_of(error, run.llm)
            if failure is error:
                raise
            raise failure from error

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Answer tool calls; play the solution if the reference policy asks for it."""
        task = self.task_of(state)
        calls: Sequence[JsonDict] = messages[-1].get("tool_calls") or [{}]
        if is_reference(state["model"]) and calls[0].get("function") == _solution_call(task)["function"]:
            return [tool_message(await self._play_solution(task, state), str(calls[0].get("id")))]
        answers = await super().env_response(messages, state)
        if SUBMIT in called_tools(messages[-1:]):
            state["final_env_response"] = answers
        return answers

    async def _play_solution(self, task: HarborTask, state: State) -> str:
        machine: Machine = state.machine
        await machine.copy_in(task.folder / "solution", "/solution")
        done, state["solution_output"] = await run_script(
            machine, "/solution/solve.sh", f"{AGENT_LOGS}/oracle.txt", user=task.agent_user,
            env=task.variables("solution", self._options.pass_env), seconds=task.agent_seconds or _NO_LIMIT,
        )  # fmt: skip
        ended = f"with exit code {done.exit_code}" if done.outcome == "exited" else done.outcome
        return f"solution/solve.sh ended {ended}"

    @stop(priority=10)
    async def submitted(self, state: State) -> bool:
        """Stop condition: the model has called `submit`."""
        return state["final_env_response"] is not None

    # The tests

    async def verify(self, machine: Machine, state: State) -> None:
        """Run the task's tests."""
        task = self.task_of(state)
        await offload.run(task.require_unchanged)
        if machine.restarts:  # which ended the services that it starts
            await self._start_entry_point(machine, task)
        await verify(task, machine, task.variables("verifier", self._options.pass_env), state)

    async def _verify(self, machine: Machine, state: State) -> None:
        """Call `verify`, and keep the logs if a folder for them is set. An error of the latter does not fail the
        rollout, whose reward is known."""
        await super()._verify(machine, state)
        if self._options.logs is not None:
            name = f"{state['rollout_index']}-{state['trajectory_id']}"
            target = self._options.logs / self.task_of(state).name / name
            try:
                await machine.copy_out("/logs", target)
            except (OSError, ValueError, SandboxError) as error:
                logger.warning("the logs cannot be kept in %s: %s", target, error)

    # Reference policies

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Play the task's solution.

        Raises:
            EnvironmentFault: the task has none; it alone is unscored.
        """
        task = self._tasks[example.info["task"]]
        if not task.has_solution:
            raise EnvironmentFault(f"the task {task.name} has no solution/solve.sh")
        if messages[-1].get("role") != "user":
            return "The solution has been played."
        return {"role": "assistant", "content": None, "tool_calls": [_solution_call(task)]}

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """Do nothing."""
        return "I do nothing."


def _wants_more(task: HarborTask) -> bool:
    """Return whether a task asks for more processors than this computer has, which engines refuse."""
    return task.cpus is not None and task.cpus > (os.cpu_count() or 1)


def _solution_call(task: HarborTask) -> JsonDict:
    arguments = json.dumps({"hash": task.digest})
    return {"id": "solution", "type": "function", "function": {"name": SOLUTION, "arguments": arguments}}
