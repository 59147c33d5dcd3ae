"""Session of `bench test -i`: each row is a run of one rollout by the engine, which stops before every model call.
Nothing is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import uvloop

from harness.agents.environment import AgentEnv
from harness.agents.local_test_runner import LocalTestRunResult, to_test
from harness.cli.agent_runs import AgentInvocation
from harness.cli.interactive_steps import Command, Prompter, Screen, Stepper, shown_messages
from harness.cli.test_run import result_line
from harness.core.errors import UsageError
from harness.core.records import Failed as FailedRecord
from harness.core.records import Generated, Scored
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.load_environments import Loader
from harness.engine.prepare import LiveRun
from harness.report.text import clean
from harness.usercode import event_loop


class TestSession:
    """One session of `bench test -i`.

    Args:
        job: Model, agent and rows of the session.
        prompter: Reads the user's commands.
        screen: Output of the session.
        first: Number of the row to start with; None for the first one.

    Raises:
        UsageError: the row does not exist.
    """

    def __init__(self, job: AgentInvocation, prompter: Prompter, screen: Screen, first: int | None) -> None:
        self._job = job
        self._prompter = prompter
        self._screen = screen
        self._rows = rows_of(job)
        self._first = self._rows[0] if first is None else first
        if self._first not in self._rows:
            raise UsageError(f"--row {first}: there are the rows {self._rows[0]} to {self._rows[-1]}")
        self._failed = False

    def run(self) -> bool:
        """Play rows until the user quits; return whether every finished row succeeded."""
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
                self._screen.say("that was the last row")
                return
            self._screen.say("")

    async def _play(self, row: int) -> Command:
        """Play one row, and ask for the next command."""
        model = self._job.sides[0].model
        stepper = Stepper(self._prompter, self._screen, model)
        environment = _one_row(self._job.environments[0], row - self._rows[0], row, stepper)
        self._screen.say(f"Row {row} of {self._rows[0]} to {self._rows[-1]}")
        for line in shown_messages(cast("list[dict[str, Any]]", environment.row(0).prompt)):
            self._screen.say(line)
        outcome = await _made(self._job, environment)
        if stepper.left is not None:
            return stepper.left
        result = outcome.result
        self._screen.say(f"Row {row}: stopped: {outcome.note}" if result is None else result_line(result))
        if result is not None and result.reward is not None:
            self._screen.say(f"  reward: {result.reward:g}")
        self._failed = self._failed or result is None or not result.success
        said = [] if result is None else result.messages
        return await self._prompter.ask({"messages": lambda: _whole(said)})


def rows_of(job: AgentInvocation) -> range:
    """Numbers of the selected rows, as counted in the dataset."""
    environment, wanted = job.environments[0], job.resolution.runs[0].settings.env.num_examples
    first, count = environment.options.first_row, environment.row_count
    return range(first, first + (count if wanted == -1 else min(wanted, count)))


@dataclass(slots=True)
class _Outcome:
    result: LocalTestRunResult | None = None
    """None if the endpoint was unusable, or if the user left the row."""
    note: str = ""


def _one_row(whole: AgentEnv, index: int, number: int, stepper: Stepper) -> AgentEnv:
    row = whole.row(index)
    system, user = cast("list[dict[str, str]]", row.prompt)
    columns = {"system_prompt": system["content"], "user_prompt": user["content"], "ground_truth": row.answer}
    options = replace(whole.options, first_row=number, step=stepper)
    return AgentEnv([{**row.info, **columns}], whole.agent, options=options)


async def _made(job: AgentInvocation, environment: AgentEnv) -> _Outcome:
    """Make one rollout of the environment's only row."""
    loader, outcome = Loader(), _Outcome()
    for resolved in job.resolution.runs:
        loader.give(resolved, environment)
    listener = EvaluationListener(finished=partial(_keep, outcome))
    [run] = await Evaluation(job.resolution.runs, loader, keys=job.keys, listener=listener).run()
    outcome.note = clean(run.progress.note)
    return outcome


def _keep(outcome: _Outcome, run: LiveRun, record: Generated | FailedRecord, _scored: Scored | None) -> None:
    outcome.result = to_test(next(run.plan.rollouts.examples()), record)


def _whole(messages: list[dict[str, Any]]) -> Iterator[str]:
    yield from shown_messages(messages)
