"""Tasks that tests write, and how they are run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from containers import IMAGE, need_podman
from scripted_chat import ScriptedChat

from harness.core.records import Example
from harness.core.state import State
from harness.plugins.harbor.environment import HarborEnv
from harness.plugins.harbor.loader import load_environment

TASK = """[environment]
docker_image = "example.org/no/such:1"
network_mode = "no-network"
"""

IMAGES = {"example.org/no/such:1": IMAGE}

GOOD = "echo 1 >/logs/verifier/reward.txt"


def make_task(
    parent: Path, name: str = "a-task", test: str = GOOD, toml: str = "", files: Mapping[str, str] | None = None
) -> Path:
    """Write a task below a folder; returns the task's folder."""
    folder = parent / name
    needed = {"task.toml": TASK + toml, "instruction.md": "Do it.\n", "tests/test.sh": f"#!/bin/sh\n{test}\n"}
    for path, text in {**needed, **(files or {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def load(path: Path | str, **arguments: Any) -> HarborEnv:
    need_podman()
    return load_environment(path=str(path), sandbox="podman", images=IMAGES, containers=2, **arguments)


def play(env: HarborEnv, *replies: object, row: int = 0, model: str = "m") -> State:
    """Play a row with these replies, and score it."""
    found = env.row(row)
    example = Example("k", found.example_id or 0, found.prompt, info=found.info)
    state = State.begin(example, 0, model, {})

    async def main() -> None:
        await env.rollout(state, ScriptedChat([*replies, "done"]))
        await env.rubric.score([state])

    asyncio.run(main())
    return state


def call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def bash(command: str) -> dict[str, Any]:
    return call("bash", command=command)


def told(state: State) -> list[str]:
    return [message["content"] for message in state["completion"] if message["role"] == "tool"]
