"""Parent-side proxy of an isolated environment: its rows, its properties for the engine, and its replies for the
embedded server. Contains no environment code; its worker processes execute that through `pool`."""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

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

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < len(self._places):
            raise IndexError(f"there is no row {index}: there are {len(self._places)}")
        if self._places[index] < 0:
            self._fetch(index)
        self._file.seek(self._places[index])
        return Row(**parse(self._file.readline())["row"])

    def _fetch(self, first: int) -> None:
        told = self._worker.ask({"type": "rows", "first": first})
        self._file.seek(self._end)
        for number, row in enumerate(cast("list[JsonDict]", told["rows"]), first):
            self._places[number] = self._end
            self._end += self._file.write(pack({"type": "row", "row": row}))


class StandInRubric(Rubric):
    """Proxy of a rubric that scores in another process.

    Args:
        told: The child's description of the rubric.
        worker: The child, to be asked about single functions.
    """

    def __init__(self, told: JsonDict, worker: Worker) -> None:
        super().__init__()
        self._told = told
        self._worker = worker
        self._judges = tuple(JudgeSpec(**spec) for spec in cast("list[JsonDict]", told["judges"]))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The name of every function, in order."""
        return tuple(self._told["metric_names"])

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each function by its name."""
        return dict(self._told["weights"])

    @property
    def is_group(self) -> bool:
        """Whether a function sees all rollouts of an example together."""
        return bool(self._told["is_group"])

    @property
    def needs_live_state(self) -> bool:
        """Whether rollouts can only be scored in the process that generated them."""
        return bool(self._told["needs_live_state"])

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judge models that functions call: always the same objects, in the child's order."""
        return self._judges

    @property
    def reward_range(self) -> tuple[float, float]:
        """The lowest and the highest possible reward of the rubric."""
        low, high = map(float, self._told["reward_range"])
        return low, high

    @property
    def has_custom_reward(self) -> bool:
        """Whether a subclass computes the reward by other means than the weighted sum."""
        return bool(self._told["has_custom_reward"])

    def only(self, name: str) -> Rubric:
        """Proxy of the part of the rubric that runs one function.

        Raises:
            UsageError: see `Rubric.only`.
        """
        told = self._worker.ask({"type": "only", "function": name})
        part = StandInRubric({**self._told, **told, "judges": []}, self._worker)
        part._judges = tuple(self._judges[place] for place in cast("list[int]", told["judges"]))
        return part

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Raise AssertionError: the environment's processes score."""
        raise AssertionError("an isolated rubric is scored by its executor")


class IsolatedEnvironment(Environment):
    """Proxy of an environment in isolated processes; the first process describes it.

    Args:
        recipe: How to start each process.
        workers: Number of processes.
        first: The first process, if it was started already.

    Raises:
        HarnessError: the environment does not load.
    """

    def __init__(self, recipe: Recipe, workers: int, first: Worker | None = None) -> None:
        super().__init__(dataset=_no_rows)  # never called: the rows come from the process
        worker = first or Worker(recipe)
        told = worker.loaded()
        # The judges are known only now. A process that executes rollouts must not have their keys.
        if keys := recipe.showing(judge["api_key_var"] for judge in told["rubric"]["judges"]):
            worker.kill_and_wait()
            recipe = replace(recipe, hidden=recipe.hidden | keys)
            worker = Worker(recipe)
            told = worker.loaded()
        self.env_id = told["env_id"]
        self.env_args = recipe.env_args
        self.message_type = told["message_type"]
        self.sampling_args = told["sampling_args"]
        self.extra_env_kwargs = told["extra_env_kwargs"]
        self.source_files = tuple(map(Path, told["source_files"]))
        self.rubric = StandInRubric(told["rubric"], worker)
        self.judges: tuple[JudgeSpec, ...] = self.rubric.judges
        """The judges of the whole rubric, in the order in which its processes number them."""
        self.pool = Pool(recipe, workers, worker, told["patience"])
        """Worker processes of the environment."""
        self._told = told
        self._rows = SpooledRows(worker, told["row_count"])
        self._played: dict[tuple[str, str], JsonDict] = {}
        self._asking: Counter[tuple[str, str]] = Counter()
        # Set on the instance: `neutral_args` is a class attribute of the real environment.
        vars(self)["neutral_args"] = frozenset(told["neutral_args"])

    @property
    def fingerprint(self) -> JsonDict:
        """The fingerprint of the real environment."""
        return dict(self._told["fingerprint"])

    @property
    def row_count(self) -> int:
        """Number of rows of the evaluation dataset."""
        return len(self._rows)

    def row(self, index: int) -> Row:
        """One row with its formatted prompt.

        Raises:
            IndexError: there is no such row.
            HarnessError: the row is invalid, or the environment's process has ended.
        """
        return self._rows[index]

    async def play(self, state: State) -> None:
        """Raise AssertionError: the environment's processes play."""
        raise AssertionError("an isolated environment is played by its executor")

    async def teardown(self) -> None:
        """End all processes, each after the environment's own teardown."""
        await self.pool.end()

    # Replies for the embedded server. A process that calls a model played by this server sends the environment's
    # replies along, since the server cannot wait for the process.

    @contextlib.contextmanager
    def playing(self, played: Mapping[str, Any] | None) -> Generator[None]:
        """Context manager that makes the replies sent by a process available to the embedded server."""
        if played is None:
            yield
            return
        place = (played["example_key"], played["messages"])
        self._played.setdefault(place, {}).update(played["replies"])
        self._asking[place] += 1
        try:
            yield
        finally:
            self._asking[place] -= 1
            if not self._asking[place]:
                del self._asking[place], self._played[place]

    @property
    def has_reference(self) -> bool:
        """Whether the environment defines an ideal player's replies."""
        return bool(self._told["has_reference"])

    @property
    def has_reference_verdict(self) -> bool:
        """Whether the environment defines an ideal judge's verdicts."""
        return bool(self._told["has_reference_verdict"])

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """The reply of an ideal player."""
        return self._said("reference_reply", example, messages)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """The reply of a player without knowledge."""
        return self._said("null_reply", example, messages)

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """The verdict of an ideal judge."""
        return cast(str, self._said("reference_verdict", example, messages))

    def _said(self, method: str, example: Example, messages: Messages) -> Message | str:
        reply = self._played.get((example.key, digest(messages)), {}).get(method)
        if reply is None:
            raise EnvironmentFault(f"{self.env_id}: its process did not say what {method} answers to these messages")
        if "raised" in reply:
            _raise(reply)
        return reply["said"]


def _no_rows() -> list[JsonDict]:
    raise AssertionError("the rows of an isolated environment come from its process")


def _raise(reply: JsonDict) -> NoReturn:
    error = error_from_json(reply["raised"])
    raise NotImplementedError(str(error)) if reply["is_missing"] else error
