"""Environments that misbehave: one table for every executor. An entry is the source text of a module, how its run must
end, and what must be said of it. The line that does the damage ends in `# fault`: its number must be said, too.

Each is played by `reference/oracle` with `-r 2`: 8 examples, 16 rollouts, each a tool call and then the right answer.
Whatever one of them does, another run of its suite comes to its end with all its rollouts scored, and nothing but the
result is on stdout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

EXAMPLES = 8
ROLLOUTS = 16
"""With `-r 2`."""

_TEMPLATE = '''
import asyncio, os, sys, threading, time
from harness import Rubric, ToolEnv, cleanup, stop, teardown
<top>

def look(where: str) -> str:
    """Look somewhere.

    Args:
        where: At what.
    """
    <tool>
    return "seen"

def correct(completion, answer):
    <reward>
    return float(completion[-1]["content"] == answer)

def best(completions):
    <group>
    return [1.0 for _ in completions]

async def said(completion):
    <metric>
    return float(len(completion))

class Rows:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 7:
            <row>
        return {"question": f"{index} + {index}", "answer": str(2 * index)}

def build():
    <builder>
    return Rows()

class Odd(ToolEnv):
    def __init__(self, **options):
        <init>
        super().__init__(tools=[look], **options)

    async def setup_state(self, state):
        <setup>
        return await super().setup_state(state)

    async def env_response(self, messages, state):
        <response>
        return await super().env_response(messages, state)

    async def get_prompt_messages(self, state):
        <prompts>
        return await super().get_prompt_messages(state)

    async def render_completion(self, state):
        await super().render_completion(state)
        <render>

    async def is_completed(self, state):
        <completed>
        return await super().is_completed(state)

    @stop
    def has_enough(self, state):
        <stop>
        return False

    @cleanup
    async def tidy(self, state):
        <cleanup>

    @teardown
    async def close(self):
        <teardown>

    def reference_reply(self, example, messages):
        if messages[-1]["role"] == "user":
            <call>
            call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        <reference>
        return example.answer

def load_environment():
    <load>
    return Odd(dataset=build, rubric=Rubric([correct, best, said], [1.0, 0.0, 0.0]))
'''

_CALL = """name, arguments = "look", '{"where": "up"}'"""


def source(**places: str) -> str:
    """An environment that behaves, but for the code that is put in places of it."""
    unknown = set(places) - set(re.findall(r"<(\w+)>", _TEMPLATE))
    assert not unknown, f"the template has no place {unknown}"

    def filled(match: re.Match[str]) -> str:
        indent, name = match.groups()
        text = places.get(name, _CALL if name == "call" else "pass")
        return "\n".join(indent + line for line in text.splitlines())

    return re.sub(r"^( *)<(\w+)>$", filled, _TEMPLATE, flags=re.MULTILINE)


@dataclass(frozen=True)
class Misbehaving:
    """One environment, and what must come of its run."""

    source: str
    said: tuple[str, ...] = ()
    """What must be said: on stderr, in the run's note, or in what the journal has of a rollout."""
    state: str = "done"
    """The run's: `done`; `failed` if it could not be loaded, or could not go on."""
    scored: int | None = ROLLOUTS
    """Rollouts with a reward; None where there is no summary."""
    unscored: Mapping[str, int] = field(default_factory=dict[str, int])
    """Rollouts without, by the summary's reason."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means of metrics that must come out."""
    names_line: bool = True
    """Whether file and line must be said; a tool's error is told to the model, and needs no line."""

    @property
    def line(self) -> int | None:
        """The number of the line that does the damage; None if there is none to be named."""
        marked = [number for number, line in enumerate(self.source.splitlines(), 1) if line.endswith("# fault")]
        return marked[0] if marked and self.names_line else None

    @property
    def code(self) -> int:
        """The exit code of a run of it alone."""
        return 0 if self.state == "done" and self.scored else 1


FAULTS = {
    "raises": ("raise RuntimeError('boom')  # fault", "RuntimeError: boom"),
    "exits": ("sys.exit('enough')  # fault", "SystemExit: enough"),
    "interrupts": ("raise KeyboardInterrupt  # fault", "KeyboardInterrupt"),
}
"""What is done in every place: how, and what must be said of it."""


def _at_every_place() -> dict[str, Misbehaving]:
    found: dict[str, Misbehaving] = {}
    for fault, (text, words) in FAULTS.items():
        for place in ("top", "load", "init", "builder"):
            found[f"{place}_{fault}"] = Misbehaving(source(**{place: text}), (words,), "failed", None)
        found[f"row_{fault}"] = Misbehaving(source(row=text), (words, "row 7"), "failed", None)
        for place in ("setup", "response", "completed", "stop", "cleanup"):
            unscored = {"environment_error": ROLLOUTS}
            found[f"{place}_{fault}"] = Misbehaving(source(**{place: text}), (words,), "done", 0, unscored)
        if fault == "raises":  # of a tool that fails the model is told
            found[f"tool_{fault}"] = Misbehaving(source(tool=text), ("boom",), names_line=False)
        else:
            found[f"tool_{fault}"] = Misbehaving(
                source(tool=text), (words,), "done", 0, {"environment_error": ROLLOUTS}
            )
        reward = {f"correct raised {words.partition(':')[0]}": ROLLOUTS}
        found[f"reward_{fault}"] = Misbehaving(source(reward=text), (words,), "done", 0, reward)
        for place in ("group", "metric", "teardown"):  # no reward hangs on these
            found[f"{place}_{fault}"] = Misbehaving(source(**{place: text}), (words,))
    return found


AT_EVERY_PLACE = _at_every_place()
"""An error, `sys.exit` and KeyboardInterrupt in every place in which an environment has code."""


_ALL = dict.fromkeys(["environment_error"], ROLLOUTS)


def _fails(place: str, text: str, *said: str) -> Misbehaving:
    """Every rollout fails."""
    return Misbehaving(source(**{place: text}), said, "done", 0, _ALL, names_line=False)


def _gives(text: str, value: float) -> Misbehaving:
    """A reward that is a number after all."""
    return Misbehaving(source(reward=text), values={"correct": value})


def _gives_none(text: str, reason: str) -> Misbehaving:
    """A reward that is no number: no rollout is scored."""
    return Misbehaving(source(reward=text), (reason,), "done", 0, {f"correct {reason}": ROLLOUTS})


RETURNS = {
    "load_returns_int": Misbehaving(source(load="return 7"), ("returned int, not an Environment",), "failed", None),
    "load_returns_none": Misbehaving(source(load="return"), ("returned NoneType, not an Env",), "failed", None),
    "load_returns_class": Misbehaving(source(load="return Odd"), ("returned ABCMeta, not an Env",), "failed", None),
    "builder_returns_none": Misbehaving(
        source(builder="return"), ("dataset must be a list of dicts", "not NoneType"), "failed", None
    ),
    "builder_returns_text": Misbehaving(
        source(builder="return 'rows'"), ("dataset must be a list of dicts", "not str"), "failed", None
    ),
    "builder_returns_nothing": Misbehaving(source(builder="return []"), ("dataset is empty",), "failed", None),
    "row_returns_none": Misbehaving(
        source(row="return None"), ("dataset row 7 must be a dict of columns, not NoneType",), "failed", None
    ),
    "row_returns_bytes": Misbehaving(
        source(row="return {'question': b'q'}"),
        ("dataset row 7, column 'question': must be a string, not bytes",),
        "failed",
        None,
    ),
    "setup_returns_int": _fails("setup", "return 7", "setup_state must return the state or None, not int"),
    "response_returns_none": _fails("response", "return", "env_response must return a list of messages, not NoneType"),
    "response_returns_text": _fails("response", "return 'go on'", "must return a list of messages, not str"),
    "response_returns_pair": _fails("response", "return [], state", "must return only the messages, not a tuple"),
    "response_returns_ints": _fails("response", "return [7]", "message 0 must be a dict with 'role' and 'content'"),
    "response_returns_roleless": _fails("response", "return [{'content': 'x'}]", "message 0 has no role"),
    "stop_returns_array": _fails(
        "stop",
        "import numpy\nreturn numpy.array([0, 1])",
        "@stop has_enough returned ndarray, which cannot be converted to bool",
    ),
    "stop_returns_coroutine": _fails(
        "stop", "return self.max_turns_reached(state)", "@stop has_enough returned a coroutine"
    ),
    "completed_returns_coroutine": _fails(
        "completed", "return super().is_completed(state)", "Odd.is_completed returned a coroutine"
    ),
    "prompts_returns_none": _fails("prompts", "return None", "get_prompt_messages must return"),
    "prompts_returns_int": _fails("prompts", "return 7", "get_prompt_messages must return"),
    "prompts_returns_nothing": _fails("prompts", "return []", "get_prompt_messages must return"),
    "render_puts_int": _fails("render", "state['completion'] = 7", "state['completion'] must be a list, not int"),
    "render_puts_objects": _fails("render", "state['completion'] = [object()]", "completion"),
    "render_takes_away": _fails("render", "del state['completion']", "['completion'] must be a list, not NoneType"),
    "setup_empties_state": _fails("setup", "state.clear()", "KeyError"),
    "cleanup_puts_object": _fails(
        "cleanup", "state['stop_condition'] = object()", "JSON cannot represent a value of type object"
    ),
    "setup_puts_usage": Misbehaving(source(setup="state['usage'] = state['timing_of_mine'] = 'mine'")),
    "setup_puts_timing": _fails("setup", "state['timing'] = None", "timing"),
    "setup_puts_trajectory": _fails("setup", "state['trajectory'] = None", "NoneType"),
    "reward_returns_nan": _gives_none("return float('nan')", "returned nan"),
    "reward_returns_inf": _gives_none("return float('inf')", "returned inf"),
    "reward_returns_none": _gives_none("return None", "returned None"),
    "reward_returns_text": _gives_none("return '1.0'", "returned str"),
    "reward_returns_list": _gives_none("return [1.0]", "returned list"),
    "reward_returns_object": _gives_none("return object()", "returned object"),
    "reward_returns_huge": _gives_none("return 10**400", "returned int"),
    "reward_returns_bool": _gives("return True", 1.0),
    "reward_returns_float32": _gives("import numpy\nreturn numpy.float32(0.5)", 0.5),
    "reward_returns_fraction": _gives("from fractions import Fraction\nreturn Fraction(1, 4)", 0.25),
    "group_returns_too_few": Misbehaving(source(group="return [1.0]"), ("returned 1 values for 2 rollouts",)),
    "group_returns_number": Misbehaving(source(group="return 1.0"), ("returned float: a group function",)),
    "group_returns_mixed": Misbehaving(source(group="return [1.0, None]"), ("returned None",), values={"best": 1.0}),
}
"""What is no answer, from every hook; and rewards that look wrong and are numbers."""

HABITS = {
    "prints": Misbehaving(
        source(
            top="import subprocess\nprint('at import')",
            setup="print('in a hook')\nos.write(1, b'past python\\n')\nsubprocess.run(['echo', 'from a child'])",
            reward="sys.__stdout__.write('by the first stdout\\n')\nsys.__stdout__.flush()",
        ),
        ("at import", "in a hook", "past python", "from a child", "by the first stdout"),
    ),
    "blocks": Misbehaving(
        source(setup="if state['example_id'] == 3: time.sleep(1.5)  # fault"), ("blocks the event loop",)
    ),
    "starts_threads": Misbehaving(
        source(setup="threading.Thread(target=time.sleep, args=(3600,), name='stray').start()"), ("stray",)
    ),
    "starts_threads_of_asyncio": Misbehaving(
        source(
            top="import contextlib",
            setup="with contextlib.suppress(TimeoutError):\n"
            "    await asyncio.wait_for(asyncio.to_thread(time.sleep, 3600), 0.1)",
        ),
        ("asyncio_0",),
    ),
    "starts_tasks": Misbehaving(
        source(
            top="""
async def stay():
    while True:
        try:
            await asyncio.sleep(3600)  # fault
        except asyncio.CancelledError:
            pass
tasks = []""",
            setup="if not tasks: tasks.append(asyncio.create_task(stay()))",
        ),
        ("did not end when it was cancelled", "stay"),
    ),
    "loses_a_task": Misbehaving(
        source(
            top="async def fail():\n    raise ValueError('lost')  # fault",
            setup="if state['example_id'] == 3: asyncio.create_task(fail())",
        ),
        ("ValueError: lost",),
    ),
    "starts_children": Misbehaving(
        source(top="import subprocess", setup="subprocess.Popen(['sleep', '3600'])"), ("sleep 3600",)
    ),
    "changes_folder_loading": Misbehaving(source(load="os.chdir('/')"), ("changed the working directory to /",)),
    "ignores_signals_loading": Misbehaving(source(load="import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")),
    "closes_python_streams": Misbehaving(source(setup="sys.stdout.close()\nsys.stderr.close()")),
    "replaces_streams_loading": Misbehaving(
        source(load="sys.stdout = sys.stderr = open(os.devnull, 'w')", teardown="print('seen')"), ("seen",)
    ),
    "clears_environ": Misbehaving(source(load="os.environ.clear()")),
    "recurses": Misbehaving(
        source(setup="def deep(): return deep()  # fault\ndeep()"), ("RecursionError",), "done", 0, _ALL
    ),
    "exits_in_a_task": Misbehaving(
        source(
            top="async def leave():\n    sys.exit(0)  # fault",
            setup="async with asyncio.TaskGroup() as tasks: tasks.create_task(leave())",
        ),
        ("SystemExit: 0",),
        "done",
        0,
        _ALL,
    ),
    "raises_its_own_base": Misbehaving(
        source(top="class Own(BaseException): pass", setup="raise Own('mine')  # fault"),
        ("Own: mine",),
        "done",
        0,
        _ALL,
    ),
    "raises_the_end_of_a_generator": Misbehaving(
        source(setup="raise GeneratorExit('gone')  # fault"), ("GeneratorExit: gone",), "done", 0, _ALL
    ),
    "raises_a_group": Misbehaving(
        source(setup="raise BaseExceptionGroup('both', [SystemExit(3), ValueError('v')])  # fault"),
        ("BaseExceptionGroup: both (2 sub-exceptions)",),
        "done",
        0,
        _ALL,
    ),
    "raises_without_words": Misbehaving(
        source(
            top="class Mute(Exception):\n    def __str__(self): raise RuntimeError('no words')",
            setup="raise Mute()  # fault",
        ),
        ("Mute: its __str__ raised RuntimeError",),
        "done",
        0,
        _ALL,
    ),
    "floods_the_model": Misbehaving(source(tool="return 'x' * 100_000_000")),
    "is_called_with_half_an_object": Misbehaving(source(call="""name, arguments = "look", '{"where": '""")),
    "is_called_with_a_stray_quote": Misbehaving(source(call="""name, arguments = "look", '{"where": "up"}"'""")),
    "is_called_with_a_list": Misbehaving(source(call="""name, arguments = "look", '["up"]'""")),
    "is_called_by_another_name": Misbehaving(
        source(call="""name, arguments = "lok", '{"where": "up"}'"""), ("did you mean 'look'",)
    ),
}
"""What no library should do to its process, and what models do to tools."""

TABLE = {**AT_EVERY_PLACE, **RETURNS, **HABITS}
"""All of them, by name; the names are names of modules."""
