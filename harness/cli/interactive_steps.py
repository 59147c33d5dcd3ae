"""Interactive mode of `bench test -i`: pause an agent's run before each model call, read commands, and show messages.
The engine makes the run."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from harness.core.errors import SystemicError
from harness.core.types import JsonDict, Message
from harness.report.text import PlainConsole, clean, clean_block

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
    """One command of the user."""

    word: str
    row: int | None = None
    """Number of the row, for the command `row`."""


class UserLines(Protocol):
    """Source of the user's input lines."""

    async def line(self) -> str | None:
        """The next line without its line break; None at the end of input."""
        ...


class Leave(SystemicError):
    """Raised when the user leaves a row before its end. The run stops as after an unusable endpoint, and its result is
    dropped.

    Args:
        command: `quit` or `row`.
    """

    def __init__(self, command: Command) -> None:
        super().__init__("left at the prompt", reason="left")
        self.command = command


class StdinLines:
    """Lines of stdin, read without blocking the event loop or a thread, so that Ctrl-C reaches the prompt."""

    def __init__(self) -> None:
        self._buffer = b""
        self._ended = False

    async def line(self) -> str | None:
        """The next line; None at the end of input."""
        fd = _waitable(sys.stdin)
        if fd is None:
            text = sys.stdin.readline()
            return text.rstrip("\r\n") if text else None
        while b"\n" not in self._buffer and not self._ended:
            await _readable(fd)
            part = os.read(fd, 65536)
            self._buffer += part
            self._ended = not part
        whole, found, self._buffer = self._buffer.partition(b"\n")
        return whole.decode(errors="replace").rstrip("\r") if found or whole else None


def _waitable(stream: object) -> int | None:
    """Descriptor of a stream that can be waited on; None for a regular file or a replaced stdin."""
    try:
        fd = cast("int", stream.fileno())  # type: ignore[attr-defined] asked for below
        mode = os.fstat(fd).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    # Other character devices, such as the null device, cannot be waited on.
    return fd if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd) else None


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


class Screen:
    """Output of a session.

    Args:
        console: From `report.text.make_console`.
        is_typed: Whether the user types at this terminal; input from a pipe is repeated after the prompt.
    """

    def __init__(self, console: PlainConsole, *, is_typed: bool) -> None:
        self._console = console
        self._is_typed = is_typed

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, soft_wrap=True)

    def ask(self) -> None:
        """Show the prompt."""
        if self._is_typed:
            self._console.print(PROMPT, end="", soft_wrap=True)

    def echo(self, text: str) -> None:
        """Print the input after the prompt, unless the terminal shows it already."""
        if not self._is_typed:
            self.say(f"{PROMPT}{clean(text, 80)}")


class Prompter:
    """Reader of valid commands.

    Args:
        lines: Source of input lines.
        screen: Output of the session.
        rows: Numbers of the existing rows.
    """

    def __init__(self, lines: UserLines, screen: Screen, rows: range) -> None:
        self._lines = lines
        self._screen = screen
        self._say = screen.say
        self._rows = rows

    async def ask(self, shown: Mapping[str, Callable[[], Iterator[str]]]) -> Command:
        """Read commands until one leaves the prompt, and return it.

        Args:
            shown: Output lines of the commands that only print, by command word.
        """
        while True:
            self._screen.ask()
            text = await self._lines.line()
            if text is None:
                return Command("quit")
            self._screen.echo(text.strip())
            command = self._read(text.strip())
            if command is None:
                continue
            if command.word == "help":
                self._say(HELP)
            elif command.word in shown:
                for line in shown[command.word]():
                    self._say(line)
            elif command.word == "tools":
                self._say("the row has ended: n goes to the next one, r N to another")
            else:
                return command

    def _read(self, text: str) -> Command | None:
        """Parse a command; on an error, print it and return None."""
        first, *rest = text.split() or [""]
        first = first.lower()
        word = _WORDS.get(first, first)
        if word not in _WORDS.values():
            self._say(f"unknown command {clean(text, 60)!r}; ? lists them")
        elif word != "row":
            return Command(word)
        elif len(rest) == 1 and rest[0].isdecimal() and int(rest[0]) in self._rows:
            return Command(word, int(rest[0]))
        else:
            self._say(f"r takes the number of a row, {self._rows[0]} to {self._rows[-1]}")
        return None


class Stepper:
    """Control of one row's run by the user; set as `AgentOptions.step`.

    Args:
        prompter: Reads the user's commands.
        screen: Output of the session.
        model: Name of the model.
    """

    def __init__(self, prompter: Prompter, screen: Screen, model: str) -> None:
        self._prompter = prompter
        self._say = screen.say
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
                self._say(line)
            return
        count, tools = len(event.messages), len(event.tools)
        messages = f"{count} message{'s' if count != 1 else ''}, {tools} tool{'s' if tools != 1 else ''}"
        self._say(f"Turn {event.turn}: {messages} for {clean(self._model, 80)}")
        if self._runs_free:
            return
        command = await self._prompter.ask(
            {"messages": lambda: shown_messages(event.messages), "tools": lambda: shown_tools(event.tools)}
        )
        if command.word in ("quit", "row"):
            self.left = command
            raise Leave(command)
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
