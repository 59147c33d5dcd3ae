"""One very long conversation: what each further turn costs, from the loop of turns to the transcript on the screen.
Owns the conversation and its stages; the bound, and the table, are `__main__`'s.

The model answers at once and in this process: what goes over the wire is the whole conversation at every turn, which is
how the API of chat models is made, and no harness can change."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import MultiTurnEnv, Rubric
from harness.core.keys import ExampleKeys, RolloutKeys
from harness.core.records import Generated, Scored
from harness.core.state import State
from harness.core.types import JsonDict, Messages, ModelResponse, Prompt, Usage
from harness.engine import rollout
from harness.report.transcript import transcript
from harness.store.journal import Journal
from harness.store.journal_index import Recorded
from harness.store.outcomes import outcomes
from harness.store.rows import RowFile, RowShape


class Talker:
    """A model that always has something to say."""

    model = "talker"

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """A reply."""
        said = {"role": "assistant", "content": f"This is what I have to say to {len(prompt)} messages."}
        return ModelResponse(said, "stop", Usage(len(prompt), 12, requests=1))


class Listener(MultiTurnEnv):
    """An environment that never has enough."""

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Asks for more."""
        return [{"role": "user", "content": "And what comes after that?"}]


def length(completion: Messages) -> float:
    """How long it became."""
    return float(len(completion))


def play(turns: int) -> dict[str, float]:
    """CPU seconds of each stage of one rollout of so many turns."""
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_play(turns, Path(folder)))


async def _play(turns: int, folder: Path) -> dict[str, float]:
    environment = Listener(max_turns=turns, dataset=[{"question": "Begin."}], rubric=Rubric([length]))
    item = RolloutKeys({}).item(ExampleKeys().example(environment.row(0), 0), 0)
    cost: dict[str, float] = {}
    last = time.process_time()

    def lap(name: str) -> None:
        nonlocal last
        now = time.process_time()
        cost[name], last = now - last, now

    made = await rollout.generate(
        environment, item, Talker(), sampling_args={}, timeout=None, max_retries=0
    )  # fmt: skip
    record = made.record
    assert isinstance(record, Generated), record
    assert len(record.completion) == 2 * turns - 1
    lap("generate")
    [score] = await rollout.score(environment.rubric, [made.state], None)
    scored = Scored(item.key, "scored", score.reward, score.metrics, score.reasons)
    lap("score")
    journal = Journal.open(folder / "journal.jsonl")
    for line in (item.example, record, scored):
        await journal.append(line)
    journal.close()
    lap("journal")
    recorded = Recorded.load(folder / "journal.jsonl")
    [outcome] = outcomes(recorded)
    assert isinstance(outcome.base, Generated)
    lap("read")
    state = State.restore(outcome.example, outcome.base, Talker.model, {})
    [again] = await rollout.score(environment.rubric, [state], None)
    assert again == score, again
    lap("rescore")
    rows = RowFile(folder / "rows.parquet", RowShape("listener", Talker.model, environment.rubric.metric_names), {})
    rows.add(outcome)
    rows.close()
    lap("dataset")
    assert sum(map(len, transcript(outcome.example, [outcome], 80))) > 50 * turns
    lap("transcript")
    return cost
