"""Recorded runs for tests of the pages of `bench view`, and what a person does there: keys, clicks, waiting."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import pack

from chromium import Tab
from run_samples import finished
from store_samples import example, failed, generated, scored
from view_server import Client

from harness.core.records import Record
from harness.core.types import Usage
from harness.store.rundir import RunDir

LOOKS = [(390, "light"), (1440, "light"), (1440, "dark"), (1920, "light")]
"""Width of a window, and light or dark."""

CHARACTERS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9)}
"""Text and key code of keys that are no characters."""


async def opened(tab: Tab, client: Client, place: str = "#/", width: int = 1440, scheme: str = "light") -> None:
    """Open the printed link, as a person does, and go to a place."""
    await tab.look(width, scheme=scheme)
    await tab.open(f"{client.link}{place}")


def keep(name: str, picture: bytes) -> None:
    """Keep a picture for people, where `BENCH_KEEP_PICTURES` names a folder."""
    if folder := os.environ.get("BENCH_KEEP_PICTURES"):
        (Path(folder) / name).write_bytes(picture)


def texts(selector: str) -> str:
    """The expression whose value is the text of each element."""
    return f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent.trim())"


async def place_of(tab: Tab) -> str:
    return str(await tab.js("location.hash"))


DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
"""Ends when the page has drawn what has changed; the next key finds the functions that belong to it."""


async def press(tab: Tab, *keys: str) -> None:
    """Press keys one after the other: characters, or names such as `Enter`."""
    for key in keys:
        text, code = CHARACTERS.get(key, (key, 0))
        await tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        await tab.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        await tab.js(DRAWN)


async def type_text(tab: Tab, text: str) -> None:
    """Type text where the focus is."""
    await tab.call("Input.insertText", text=text)


async def shows(tab: Tab, text: str, where: str = "main") -> None:
    """Wait until an element contains the text."""
    await tab.until(f"(document.querySelector({json.dumps(where)})?.textContent || '').includes({json.dumps(text)})")


async def go(tab: Tab, place: str) -> None:
    """Go to a place of the pages: the part of the address behind `#`."""
    await tab.js(f"void (location.hash = {json.dumps(place)})")


async def click(tab: Tab, selector: str) -> None:
    """Click the first element, once it is there."""
    await tab.until(f"document.querySelector({json.dumps(selector)}) !== null")
    await tab.js(f"void document.querySelector({json.dumps(selector)}).click()")


def picture(colour: tuple[int, int, int] = (11, 102, 195), side: int = 24) -> str:
    """The address of a small PNG, as messages hold images."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * side) * side
    head = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def conversation(index: int) -> list[dict[str, object]]:
    """Messages of two turns: reasoning, a tool call with its result, then an answer in Markdown with code."""
    call = {"id": f"call-{index}", "type": "function"}
    function = {"name": "look_up", "arguments": json.dumps({"city": "Bern", "day": index})}
    answer = (
        f"The answer is **{index + 1}**.\n\n```python\ndef answer():\n    return {index + 1}\n```\n\n- first\n- second"
    )
    return [
        {"role": "assistant", "content": "", "reasoning_content": f"Let me think about {index}.",
         "tool_calls": [{**call, "function": function}]},
        {"role": "tool", "tool_call_id": f"call-{index}", "content": json.dumps({"degrees": 20 + index})},
        {"role": "assistant", "content": answer},
    ]  # fmt: skip


def mixed_records(examples: int = 6, rollouts: int = 3) -> Iterator[Record]:
    """Examples of all kinds of outcomes. Rollout r of example e is right if e + r is even; the last rollout of the
    last example failed."""
    for index in range(examples):
        prompt = [
            {"role": "system", "content": "Use the tool."},
            {"role": "user", "content": [
                {"type": "text", "text": f"What is {index} + 1?"},
                {"type": "image_url", "image_url": {"url": picture()}},
            ]},
        ]  # fmt: skip
        yield example(index, prompt=prompt, info={"level": "hard" if index % 2 else "easy", "tags": ["a", "b"]})
        for rollout in range(rollouts):
            if (index, rollout) == (examples - 1, rollouts - 1):
                yield failed(index, rollout)
                continue
            usage = Usage(1000 + index, 200, requests=2, cost=0.01)
            yield generated(index, rollout, completion=conversation(index), usage=usage, stop_condition="done")
            right = float((index + rollout) % 2 == 0)
            metrics = {"correct": right, "format": 1.0}
            yield scored(index, rollout, right, metrics=metrics, extra={"judgements": [
                {"model": "lab/judge", "label": "yes" if right else "no", "text": f"I judge rollout {rollout}."},
            ]})  # fmt: skip


def mixed_run(out: Path, **changes: object) -> RunDir:
    """A finished run of `mixed_records`."""
    planned = {"num_examples": 6, "rollouts_per_example": 3}
    return finished(out, mixed_records(), planned=planned, **changes)


HOSTILE = (
    "<img src=x onerror=\"window.hacked='{}'\"><script>window.hacked='{}'</script>\" onmouseover=\"window.hacked=1"
)
"""Text that becomes a program where it is taken for markup."""


def hostile(field: str) -> str:
    """Hostile text that says where it was shown."""
    return f"{field} " + HOSTILE.replace("{}", field)


def hostile_run(out: Path, reply: str = "reply", **changes: object) -> RunDir:
    """A run with hostile text in every field that a page shows, also in the reply that begins with `reply`."""
    link = (
        "[click](javascript:window.hacked=1) ![picture](http://127.0.0.1:9/x.png) <b onclick='window.hacked=1'>bold</b>"
    )
    fence = "```python\n</code></pre>" + hostile("code") + "\n```"
    prompt = [
        {"role": hostile("role"), "name": hostile("name"), "content": f"{hostile('content')}\n\n{link}\n\n{fence}"}
    ]
    call = {"id": "1", "type": "function", "function": {"name": hostile("function"), "arguments": hostile("arguments")}}
    completion = [
        {"role": "assistant", "content": hostile(reply), "reasoning": hostile("reasoning"), "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": hostile("result")},
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:text/html,<script>window.hacked=1</script>"}},
            {"type": hostile("type"), "x": hostile("part")},
        ]},
    ]  # fmt: skip
    state = {hostile("state name"): {hostile("inner"): hostile("state value")}}
    judgement = {
        "model": hostile("judge"),
        "label": hostile("label"),
        "text": hostile("judgement"),
        "prompt": hostile("asked"),
    }
    records: list[Record] = [
        example(0, example_id=hostile("id"), prompt=prompt, answer=hostile("answer"), task=hostile("task"),
                info={hostile("info name"): hostile("info value")}),
        generated(0, 0, completion=completion, stop_condition=hostile("stop"), state=state),
        scored(0, 0, 0.0, metrics={hostile("metric"): 0.0}, extra={"judgements": [judgement]}),
        failed(0, 1, reason=hostile("reason"), error=hostile("error")),
    ]  # fmt: skip
    return finished(
        out, records, model=hostile("model"), name=hostile("environment"), command=hostile("command"),
        settings={hostile("setting"): hostile("value")}, versions={hostile("package"): hostile("version")},
        planned={"num_examples": 1, "rollouts_per_example": 2}, **changes,
    )  # fmt: skip


def compared_records(right: int, wording: str = "I think", examples: int = 6) -> Iterator[Record]:
    """Examples with two rollouts of three turns each. The first `right` examples are right; the first turn is the same
    in all runs, and the second begins with the wording."""
    for index in range(examples):
        question = f"A shop sells {index + 2} boxes of {index + 3} pens. How many pens are that?"
        yield example(index, prompt=[{"role": "user", "content": question}], answer=str((index + 2) * (index + 3)))
        for rollout in range(2):
            found = (index + 2) * (index + 3) + (0 if index < right else 1)
            call = {"id": f"{wording}-{rollout}", "type": "function"}
            function = {"name": "multiply", "arguments": json.dumps({"a": index + 2, "b": index + 3})}
            completion = [
                {"role": "assistant", "content": "I multiply.", "tool_calls": [{**call, "function": function}]},
                {"role": "tool", "tool_call_id": call["id"], "content": str((index + 2) * (index + 3))},
                {"role": "assistant", "content": f"{wording} that the shop sells {found} pens in all boxes together."},
                {"role": "user", "content": "Are you sure?"},
                {"role": "assistant", "content": f"Yes: **{found}**."},
            ]  # fmt: skip
            yield generated(index, rollout, completion=completion, usage=Usage(900, 80 + index, requests=3, cost=0.01))
            reward = 1.0 if index < right else float(rollout == 1 and index == right)
            yield scored(index, rollout, reward, metrics={"correct": reward})


def compared_run(out: Path, right: int, letters: str, wording: str = "I think", **changes: object) -> RunDir:
    """A finished run of `compared_records`."""
    planned = {"num_examples": 6, "rollouts_per_example": 2}
    records = compared_records(right, wording)
    return finished(out, records, letters=letters, planned=planned, model=f"lab/{letters}", **changes)
