"""Interactive mode of `bench test -i`. Each row is run as a single rollout, which stops before every model call to show
messages and read commands. Nothing is saved."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import uvloop

from harness.agents.environment import AgentEnv
from harness.agents.local_test_runner import LocalTestRunResult, to_test
from harness.cli.agent_runs import AgentInvocation
from harness.cli.test_run import result_line
from harness.core.errors import SystemicError, UsageError
from harness.core.records import Failed as FailedRecord
from harness.core.records import Generated, Scored
from harness.core.types import JsonDict, Message
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.load_environments import Loader
from harness.engine.prepare import LiveRun
from harness.report.text import PlainConsole, clean, clean_block
from harness.usercode import event_loop

if TYPE_CHECKING:
    from harness.agents.llm import StepEvent

HELP = """\
n, next      make this model call; after the end of a row, go to the next one
c, continue  make all further calls of this row without asking
m, messages  show the conversation as it will be sent
t, tools     show the tools that the model is offered
r N, row N   leave this row and go to row N
q, quit      leave
?, help      this list"""

PROMPT = "> "

MOST_TEXT = 4000
"""Maximum number of characters shown of one message."""

_WORDS = {"n": "next", "c": "continue", "m": "messages", "t": "tools", "q": "quit", "r": "row", "?": "help", "": "next"}


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the user typed."""

    word: str
    row: int | None = None
    """Number of the row, for the command `row`."""


class StdinLines:
    """Lines of stdin, read without blocking the event loop or a thread, so that Ctrl-C reaches the prompt."""

    def __init__(self) -> None:
        self._buffer = b""
        self._ended = False

    async def line(self) -> str | None:
        """Return the next line; None at the end of input."""
        try:
            fd = sys.stdin.fileno()
            mode = os.fstat(fd).st_mode
            # Files and other character devices, such as the null device, cannot be waited on.
            can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        except (AttributeError, OSError, ValueError):  # stdin was replaced
            fd, can_wait = -1, False
        if not can_wait:
            text = sys.stdin.readline()
            return text.rstrip("\r\n") if text else None
        loop = asyncio.get_running_loop()
        while b"\n" not in self._buffer and not self._ended:
            ready = asyncio.Event()
            loop.add_reader(fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(fd)
            part = os.read(fd, 65536)
            self._buffer += part
            self._ended = not part
        whole, found, self._buffer = self._buffer.partition(b"\n")
        return whole.decode(errors="replace").rstrip("\r") if found or whole else None


class Prompter:
    """Prints the output of an interactive session, and reads the user's commands.

    Args:
        console: Console from `report.text.make_console`.
        rows: Numbers of the existing rows.
    """

    def __init__(self, console: PlainConsole, rows: range) -> None:
        self._console = console
        self._rows = rows
        self._lines = StdinLines()
        self._is_typed = sys.stdin.isatty()  # else the input is repeated after the prompt

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, soft_wrap=True)

    async def ask(self, shown: Mapping[str, Callable[[], Iterator[str]]]) -> Command:
        """Read commands until one leaves the prompt, and return it.

        Args:
            shown: Functions that make the output lines of commands that only print, by command word.
        """
        while True:
            if self._is_typed:
                self._console.print(PROMPT, end="", soft_wrap=True)
            text = await self._lines.line()
            if text is None:
                return Command("quit")
            if not self._is_typed:
                self.say(f"{PROMPT}{clean(text.strip(), 80)}")
            command = self._read(text.strip())
            if command is None:
                continue
            if command.word == "help":
                self.say(HELP)
            elif command.word in shown:
                for line in shown[command.word]():
                    self.say(line)
            elif command.word == "tools":
                self.say("the row has ended: n goes to the next row, r N to another row")
            else:
                return command

    def _read(self, text: str) -> Command | None:
        """Parse a command; on an error, print it and return None."""
        first, *rest = text.split() or [""]
        first = first.lower()
        word = _WORDS.get(first, first)
        if word not in _WORDS.values():
            self.say(f"unknown command {clean(text, 60)!r}; ? lists them")
        elif word != "row":
            return Command(word)
        elif len(rest) == 1 and rest[0].isdecimal() and int(rest[0]) in self._rows:
            return Command(word, int(rest[0]))
        else:
            self.say(f"r requires the number of a row, {self._rows[0]} to {self._rows[-1]}")
        return None


class Leave(SystemicError):
    """Raised when the user leaves a row before its end. The run stops as after an unusable endpoint, and its result is
    dropped."""

    def __init__(self) -> None:
        super().__init__("the user left the row at the prompt", reason="left")


class Stepper:
    """Callback with which the user controls the run of one row; set as `AgentOptions.step`.

    Args:
        prompter: Prints output and reads commands.
        model: Name of the model.
    """

    def __init__(self, prompter: Prompter, model: str) -> None:
        self._prompter = prompter
        self._model = model
        self._runs_free = False
        self.left: Command | None = None
        """Command with which the user left the row; None before."""

    async def __call__(self, event: StepEvent) -> None:
        """Wait for a command before a model call; print the reply after it.

        Raises:
            Leave: the user leaves the row.
        """
        if event.response is not None:
            for line in shown_messages([event.response]):
                self._prompter.say(line)
            return
        count, tools = len(event.messages), len(event.tools)
        messages = f"{count} message{'s' if count != 1 else ''}, {tools} tool{'s' if tools != 1 else ''}"
        self._prompter.say(f"Turn {event.turn}: {messages} for {clean(self._model, 80)}")
        if self._runs_free:
            return
        command = await self._prompter.ask(
            {"messages": lambda: shown_messages(event.messages), "tools": lambda: shown_tools(event.tools)}
        )
        if command.word in ("quit", "row"):
            self.left = command
            raise Leave
        self._runs_free = command.word == "continue"


def shown_messages(messages: Sequence[Message]) -> Iterator[str]:
    """Format messages for a terminal, without control characters."""
    for message in messages:
        role = clean(message.get("role", "?"), 20)
        name = f" {clean(message['tool_call_id'], 60)}" if message.get("tool_call_id") else ""
        content: object = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
        if text or not message.get("tool_calls"):
            yield _block(f"{role}{name}:", text)
        for call in cast("list[JsonDict]", message.get("tool_calls") or []):
            function = cast("JsonDict", call.get("function") or {})
            yield _block(f"{role} calls", f"{function.get('name')}({function.get('arguments')})")


def shown_tools(tools: Sequence[JsonDict]) -> Iterator[str]:
    """Format tools with their parameters."""
    if not tools:
        yield "  no tools"
    for tool in tools:
        function = cast("JsonDict", tool.get("function") or {})
        parameters = cast("JsonDict", function.get("parameters") or {})
        names = ", ".join(cast("JsonDict", parameters.get("properties") or {}))
        yield _block(f"{clean(function.get('name'), 80)}({clean(names, 200)}):", str(function.get("description") or ""))


def _block(head: str, text: str) -> str:
    """Format a heading with its text; further lines are indented."""
    whole = clean_block(text)
    cut = whole if len(whole) <= MOST_TEXT else f"{whole[: MOST_TEXT - 1]}…"
    return textwrap.indent(f"{head} {cut}".rstrip(), "    ").replace("    ", "  ", 1)


class TestSession:
    """One session of `bench test -i`.

    Args:
        job: Model, agent and rows of the session.
        console: Output of the session.
        first: Number of the row to start with; None for the first one.

    Raises:
        UsageError: the row does not exist.
    """

    def __init__(self, job: AgentInvocation, console: PlainConsole, first: int | None) -> None:
        self._job = job
        environment, wanted = job.environments[0], job.resolution.runs[0].settings.env.num_examples
        start, count = environment.options.first_row, environment.row_count
        self._rows = range(start, start + (count if wanted == -1 else min(wanted, count)))
        self._prompter = Prompter(console, self._rows)
        self._first = self._rows[0] if first is None else first
        if self._first not in self._rows:
            raise UsageError(f"--row {first}: must be a row from {self._rows[0]} to {self._rows[-1]}")
        self._failed = False

    def run(self) -> bool:
        """Run rows until the user quits; return whether every finished row succeeded."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            event_loop.run(runner, self._run())
        return not self._failed

    async def _run(self) -> None:
        row = self._first
        while True:
            command = await self._play(row)
            if command.word == "quit":
                return
            row = row + 1 if command.row is None else command.row
            if row not in self._rows:
                self._prompter.say("that was the last row")
                return
            self._prompter.say("")

    async def _play(self, row: int) -> Command:
        """Run one row, and ask for the next command."""
        say, runs = self._prompter.say, self._job.resolution.runs
        stepper = Stepper(self._prompter, self._job.sides[0].model)
        environment = _one_row(self._job.environments[0], row - self._rows[0], row, stepper)
        say(f"Row {row} of {self._rows[0]} to {self._rows[-1]}")
        for line in shown_messages(cast("list[dict[str, Any]]", environment.row(0).prompt)):
            say(line)
        loader, results = Loader(), list[LocalTestRunResult]()
        for resolved in runs:
            loader.give(resolved, environment)

        def keep(run: LiveRun, record: Generated | FailedRecord, _scored: Scored | None) -> None:
            results.append(to_test(next(run.plan.rollouts.examples()), record))

        [run] = await Evaluation(runs, loader, keys=self._job.keys, listener=EvaluationListener(finished=keep)).run()
        if stepper.left is not None:
            return stepper.left
        if not results:  # the endpoint was unusable
            say(f"Row {row}: stopped: {clean(run.progress.note)}")
        for result in results:
            say(result_line(result))
            if result.reward is not None:
                say(f"  reward: {result.reward:g}")
        self._failed = self._failed or not results or not results[-1].success
        said = results[-1].messages if results else []
        return await self._prompter.ask({"messages": lambda: shown_messages(said)})


def _one_row(whole: AgentEnv, index: int, number: int, stepper: Stepper) -> AgentEnv:
    row = whole.row(index)
    system, user = cast("list[dict[str, str]]", row.prompt)
    columns = {"system_prompt": system["content"], "user_prompt": user["content"], "ground_truth": row.answer}
    options = replace(whole.options, first_row=number, step=stepper)
    return AgentEnv([{**row.info, **columns}], whole.agent, options=options)
