"""Runs that are made from another run's journal: which replies are played, and what is taken over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ConfigError, UsageError
from harness.engine.derived import Derivation, How
from harness.engine.evaluation import Evaluation
from harness.engine.prepare import StartOptions
from harness.settings.resolver import resolve
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

PLAYERS = '''
"""Environments whose transcripts do not say which messages are the model's."""

from harness import MultiTurnEnv, Rubric, SingleTurnEnv


class Pair(MultiTurnEnv):
    """A second player, who speaks as an assistant too; and a question on the side, before each turn."""

    async def env_response(self, messages, state, **kwargs):
        answer = await self.get_model_response(state, [{"role": "user", "content": "aside"}])
        state.setdefault("aside", []).append(answer.message["content"])
        return [{"role": "assistant", "content": "the other player"}, {"role": "user", "content": "and now?"}]

    def reference_reply(self, example, messages):
        if messages[-1]["content"] == "aside":
            return "between us"
        return f"turn {sum(m['content'] == 'and now?' for m in messages)}"


class Worded(SingleTurnEnv):
    """Keeps a reply in other words."""

    async def render_completion(self, state):
        await super().render_completion(state)
        state["completion"] = [{**state["completion"][0], "content": "in other words"}]

    def reference_reply(self, example, messages):
        return "as it was said"


class Scribe(MultiTurnEnv):
    """Writes into the replies."""

    async def add_model_response(self, state, prompt, response):
        response.message["content"] = f"<{response.message['content']}>"
        await super().add_model_response(state, prompt, response)

    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "and now?"}]

    def reference_reply(self, example, messages):
        return f"turn {sum(m['content'] == 'and now?' for m in messages)}"


class Live(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return "yes"


def turns(completion, state):
    said = [m["content"] for m in completion if m["role"] == "assistant" and m["content"] != "the other player"]
    return float(said == ["turn 0", "turn 1", "turn 2"] and state["aside"] == ["between us", "between us"])


def worded(completion):
    return float(completion[-1]["content"] == "in other words")


def written(completion):
    said = [m["content"] for m in completion if m["role"] == "assistant"]
    return float(said == ["<turn 0>", "<turn 1>"])


def load_environment(kind="pair"):
    rows = [{"question": f"q{n}", "answer": "a"} for n in range(2)]
    if kind == "pair":
        return Pair(dataset=rows, rubric=Rubric([turns]), max_turns=3)
    if kind == "scribe":
        return Scribe(dataset=rows, rubric=Rubric([written]), max_turns=2)
    if kind == "worded":
        return Worded(dataset=rows, rubric=Rubric([worded]))
    return Live(dataset=rows, rubric=Rubric([worded], needs_live_state=True))
'''

FLAGS = {"model": "reference/oracle", "num_examples": -1, "rollouts_per_example": 2}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunDir]:
    """Makes a run of an environment above, or one that is derived from a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)

    def run(kind: str, parent: RunDir | None = None, how: How = "replay", **options: Any) -> RunDir:
        target, flags = "./players.py", {**FLAGS, "env_args": {"kind": kind}}
        start = StartOptions(**options)
        if parent is not None:
            target, flags = str(parent.config_path), {}
            start = StartOptions(derive=Derivation(how, parent, read_journal(parent)), **options)

        async def main() -> RunDir:
            async with Evaluation(resolve(target, flags).runs, start=start).hosted() as runs:
                await Evaluation([]).play(runs)
                assert (runs[0].progress.state, runs[0].progress.note) == ("done", "")
                return runs[0].folder

        return asyncio.run(main())

    return run


def numbers(run: RunDir) -> dict[str, Any]:
    """A run's summary but for what depends on the clock."""
    summary = run.read_summary()
    assert summary is not None
    return {name: value for name, value in summary.items() if name not in ("wall_s", "rollouts_per_s")}


def lines(run: RunDir, kind: str) -> list[bytes]:
    return [line for line in run.journal_path.read_bytes().splitlines() if json.loads(line)["type"] == kind]


@pytest.mark.parametrize("kind", ["pair", "worded", "scribe"])
def test_the_replies_are_played_that_the_model_gave(make: Callable[..., RunDir], kind: str) -> None:
    parent = make(kind)
    assert numbers(parent)["reward"]["mean"] == 1.0
    child = make(kind, parent)
    assert numbers(child) == numbers(parent)
    said = [[each.base.completion for each in outcomes(read_journal(run))] for run in (parent, child)]
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", ["pair", "worded", "scribe"])
def test_a_rescore_takes_rollouts_over_byte_for_byte(make: Callable[..., RunDir], kind: str) -> None:
    parent = make(kind)
    child = make(kind, parent, "rescore")
    assert numbers(child) == numbers(parent)
    assert sorted(lines(child, "generated")) == sorted(lines(parent, "generated"))
    assert len(lines(child, "scored")) == 4
    manifest = child.read_manifest()
    assert (manifest.parent, manifest.derived["how"]) == (parent.id, "rescore")


def test_a_rescore_makes_no_rollout_even_if_failed_ones_are_to_be_tried_again(make: Callable[..., RunDir]) -> None:
    parent = make("worded")
    failed = [json.loads(line) for line in parent.journal_path.read_bytes().splitlines()]
    key = next(line["key"] for line in failed if line["type"] == "generated")
    last = {"type": "failed", "stage": "generation", "reason": "timeout", "error": "late", "retryable": True}
    last |= {name: next(line[name] for line in failed if line.get("key") == key) for name in ("key", "example_key")}
    with parent.journal_path.open("ab") as journal:
        journal.write(json.dumps({**last, "rollout_index": 0}).encode() + b"\n")
    child = make("worded", parent, "rescore")
    assert (numbers(child)["scored"], numbers(child)["unscored"]) == (3, {"timeout": 1})
    before = child.journal_path.read_bytes()
    again = make("worded", parent, "rescore", resume_from=str(child.path), retry_failed=True)
    assert (again.path, again.journal_path.read_bytes()) == (child.path, before)


def test_what_needs_a_live_state_cannot_be_scored_again(make: Callable[..., RunDir]) -> None:
    parent = make("live")
    with pytest.raises(
        ConfigError, match=r"reads state that a journal cannot store .*; bench replay repeats the recorded replies"
    ):
        make("live", parent, "rescore")
    assert [each.name for each in parent.parent.iterdir() if each.is_dir()] == [parent.id]
    assert numbers(make("live", parent)) == numbers(parent)


def test_of_nothing_nothing_is_made(make: Callable[..., RunDir]) -> None:
    parent = make("worded")
    parent.journal_path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"has no recorded rollouts, so there is nothing to replay$"):
        make("worded", parent)
