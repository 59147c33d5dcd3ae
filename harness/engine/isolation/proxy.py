"""Proxy in the parent process of an isolated environment: its rows, its properties for the engine, and its replies for
the embedded reference server. Environment code runs only in the worker processes (see `pool`)."""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from harness.core.errors import EnvironmentFault
from harness.core.keys import digest
from harness.core.records import Example, Row, Score
from harness.core.state import State
from harness.core.types import JsonDict, Message, Messages
from harness.engine.isolation.pool import Pool
from harness.engine.isolation.process import Worker
from harness.engine.isolation.spawned import Recipe
from harness.engine.isolation.wire import error_from_json, pack
from harness.envs.environment import Environment
from harness.rubrics.judge_port import JudgeSpec
from harness.rubrics.rubric import Rubric
from harness.store.codec import parse

T = TypeVar("T")


class SpooledRows:
    """Dataset rows cached in an anonymous temporary file, so that memory does not grow with the dataset.

    Args:
        worker: The process to request rows from.
        count: Number of rows.
    """

    def __init__(self, worker: Worker, count: int) -> None:
        self._worker = worker
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the environment lives
        weakref.finalize(self, self._file.close)
        self._places = array("q", [-1]) * count
        self._end = 0

    def close(self) -> None:
        """Delete the file; idempotent."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < len(self._places):
            raise IndexError(f"row {index} does not exist: the dataset has {len(self._places)} rows")
        if self._places[index] < 0:
            answer = self._worker.ask({"type": "rows", "first": index})
            self._file.seek(self._end)
            for number, row in enumerate(cast("list[JsonDict]", answer["rows"]), index):
                self._places[number] = self._end
                self._end += self._file.write(pack({"type": "row", "row": row}))
        self._file.seek(self._places[index])
        return Row(**parse(self._file.readline())["row"])


def _described(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that adds read-only properties with values that the isolated process has sent."""

    def decorate(kind: type[T]) -> type[T]:
        for name in names:
            setattr(kind, name, property(lambda self, name=name: self._sent[name]))
        return kind

    return decorate


@_described("metric_names", "weights", "is_group", "needs_live_state", "reward_range", "has_custom_reward", "judges")
class RubricProxy(Rubric):
    """Proxy of a rubric that runs in isolated processes.

    Args:
        answer: The properties and the judges of the rubric, as sent by its process.
        worker: The environment's process, which is asked about single reward functions.
    """

    def __init__(self, answer: JsonDict, worker: Worker) -> None:
        super().__init__()
        self._sent = answer
        self._worker = worker

    def only(self, name: str) -> Rubric:
        """Return the proxy of a rubric that runs only one of the reward functions.

        Raises:
            UsageError: the function is unknown or cannot be run separately; see `Rubric.only`.
        """
        answer = self._worker.ask({"type": "only", "function": name})
        judges = tuple(self.judges[place] for place in cast("list[int]", answer["judges"]))
        return RubricProxy({**self._sent, **answer, "judges": judges}, self._worker)

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Always raise AssertionError, because scoring runs in the environment's own processes."""
        raise AssertionError("rollouts of an isolated environment are scored by its executor")


@_described("cluster_key", "figures_of", "fingerprint", "row_count", "has_reference", "has_reference_verdict")
class IsolatedEnvironment(Environment):
    """Proxy of an environment in isolated processes, with the properties that the first process sends.

    Args:
        recipe: How to start each process.
        workers: Number of processes.
        first: The first process; None if it was not started yet.

    Raises:
        HarnessError: the environment failed to load.
    """

    def __init__(self, recipe: Recipe, workers: int, first: Worker | None = None) -> None:
        super().__init__(dataset=_no_rows)  # never called: the rows come from the process
        worker = first or Worker(recipe)
        answer = worker.loaded()
        # The judges are known only now. A process that executes rollouts must not have their keys.
        names = [judge["api_key_var"] for judge in answer["rubric"]["judges"]]
        if keys := recipe.showing(names):
            worker.kill_and_wait()
            recipe = replace(recipe, hidden=recipe.hidden | keys)
            worker = Worker(recipe)
            answer = worker.loaded()
        self.env_id = answer["env_id"]
        self.env_args = recipe.env_args
        self.message_type = answer["message_type"]
        self.sampling_args = answer["sampling_args"]
        self.extra_env_kwargs = answer["extra_env_kwargs"]
        rubric = answer["rubric"]
        self.rubric = RubricProxy(
            {
                **rubric, "metric_names": tuple(rubric["metric_names"]),
                "reward_range": tuple(map(float, rubric["reward_range"])),
                "judges": tuple(JudgeSpec(**spec) for spec in rubric["judges"]),
            },
            worker,
        )  # fmt: skip
        self.judges: tuple[JudgeSpec, ...] = self.rubric.judges
        """The judges of the whole rubric, in the order of their numbers in messages."""
        self.pool = Pool(recipe, workers, worker, answer["patience"])
        """Worker processes of the environment."""
        self._sent = answer
        self._rows = SpooledRows(worker, answer["row_count"])
        self._played: dict[tuple[str, str], list[JsonDict]] = {}
        # Set on the instance: `neutral_args` is a class attribute of the real environment.
        vars(self)["neutral_args"] = frozenset(answer["neutral_args"])

    def row(self, index: int) -> Row:
        """Return one row with its formatted prompt.

        Raises:
            IndexError: no row has this index.
            HarnessError: the row is invalid, or the environment's process has ended.
        """
        return self._rows[index]

    def figures(self, values: Sequence[Any]) -> dict[str, float]:
        """Always raise EnvironmentFault, because the environment's processes have ended when a run is summarized."""
        raise EnvironmentFault("an isolated environment is asked for none; run it without isolation")

    async def play(self, state: State) -> None:
        """Always raise AssertionError, because rollouts run in the environment's own processes."""
        raise AssertionError("rollouts of an isolated environment are run by its executor")

    async def teardown(self) -> None:
        """End all processes, each after the environment's own teardown, and delete the cached rows."""
        try:
            await self.pool.end()
        finally:
            self._rows.close()

    # Replies for the embedded server. A process that calls a model played by this server sends the environment's
    # replies along, since the server cannot wait for the process.

    @contextlib.contextmanager
    def playing(self, played: Mapping[str, Any] | None) -> Generator[None]:
        """Context manager that makes replies sent by a worker process available to the embedded reference server."""
        if played is None:
            yield
            return
        place, replies = (played["example_key"], played["messages"]), cast(JsonDict, played["replies"])
        under_way = self._played.setdefault(place, [])
        under_way.append(replies)
        try:
            yield
        finally:
            under_way.remove(replies)
            if not under_way:
                del self._played[place]

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the reply of the environment's ideal player, as sent by the worker process."""
        return self._sent_reply("reference_reply", example, messages)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the reply of the environment's player without knowledge, as sent by the worker process."""
        return self._sent_reply("null_reply", example, messages)

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """Return the verdict of the environment's ideal judge, as sent by the worker process."""
        return cast(str, self._sent_reply("reference_verdict", example, messages))

    def _sent_reply(self, method: str, example: Example, messages: Messages) -> Message | str:
        under_way = self._played.get((example.key, digest(messages)), [])
        reply = next((replies[method] for replies in under_way if method in replies), None)
        if reply is None:
            raise EnvironmentFault(f"the process of {self.env_id} did not return {method}() for these messages")
        if "raised" in reply:
            error = error_from_json(reply["raised"])
            raise NotImplementedError(str(error)) if reply["is_missing"] else error
        return reply["said"]


def _no_rows() -> list[JsonDict]:
    raise AssertionError("the rows of an isolated environment come from its process")
