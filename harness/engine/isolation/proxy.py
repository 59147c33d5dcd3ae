"""What stands for an isolated environment in the parent: its rows, what the engine asks about it, and what the embedded
server asks of it. Owns no code of the environment; whatever needs that is done by its processes, through `pool`."""

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
    """Rows that were sent once, in a file that is nobody's: memory must not grow with the dataset.

    Args:
        worker: Whom to ask.
        count: Rows that there are.
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
    """What the engine must know of a rubric that scores elsewhere.

    Args:
        told: What the child says of it.
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
        """The judge models that functions ask: always the same objects, in the child's order."""
        return self._judges

    @property
    def reward_range(self) -> tuple[float, float]:
        """The lowest and the highest reward."""
        low, high = map(float, self._told["reward_range"])
        return low, high

    @property
    def has_own_way(self) -> bool:
        """Whether a subclass makes the reward by other means than adding up."""
        return bool(self._told["has_own_way"])

    def only(self, name: str) -> Rubric:
        """What is known of the part that runs one function.

        Raises:
            UsageError: see `Rubric.only`.
        """
        told = self._worker.ask({"type": "only", "function": name})
        part = StandInRubric({**self._told, **told, "judges": []}, self._worker)
        part._judges = tuple(self._judges[place] for place in cast("list[int]", told["judges"]))
        return part

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Never called: the environment's processes score."""
        raise AssertionError("an isolated rubric is scored by its executor")


class IsolatedEnvironment(Environment):
    """An environment that lives in processes of its own. The first of them says what it is.

    Args:
        recipe: What each process is made of.
        workers: How many.
        first: The first one, if it was started already.

    Raises:
        HarnessError: the environment does not load.
    """

    def __init__(self, recipe: Recipe, workers: int, first: Worker | None = None) -> None:
        super().__init__(dataset=_no_rows)  # never opened: the rows come from its process
        worker = first or Worker(recipe)
        told = worker.loaded()
        # Who judges is known only now. No process that carries out anything has the key.
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
        """Its processes."""
        self._told = told
        self._rows = SpooledRows(worker, told["row_count"])
        self._played: dict[tuple[str, str], JsonDict] = {}
        self._asking: Counter[tuple[str, str]] = Counter()
        # A class attribute of the environment, which is not this class.
        vars(self)["neutral_args"] = frozenset(told["neutral_args"])

    @property
    def fingerprint(self) -> JsonDict:
        """As the environment itself says."""
        return dict(self._told["fingerprint"])

    @property
    def row_count(self) -> int:
        """Rows of the evaluation dataset."""
        return len(self._rows)

    def row(self, index: int) -> Row:
        """One row, its prompt formatted.

        Raises:
            IndexError: there is no such row.
            HarnessError: the row is wrong, or the environment's process is gone.
        """
        return self._rows[index]

    async def play(self, state: State) -> None:
        """Never called: the environment's processes play."""
        raise AssertionError("an isolated environment is played by its executor")

    async def teardown(self) -> None:
        """End its processes, each after the environment's own teardown."""
        await self.pool.end()

    # What the embedded server asks. A process that asks a model which this server plays sends along what the
    # environment would say, since the server cannot wait for it.

    @contextlib.contextmanager
    def playing(self, played: Mapping[str, Any] | None) -> Generator[None]:
        """What a process has sent along is known inside."""
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
        """Whether the environment says how an ideal player answers."""
        return bool(self._told["has_reference"])

    @property
    def has_reference_verdict(self) -> bool:
        """Whether it says how an ideal judge does."""
        return bool(self._told["has_reference_verdict"])

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """How an ideal player answers."""
        return self._said("reference_reply", example, messages)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """How a player answers who knows nothing."""
        return self._said("null_reply", example, messages)

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """How an ideal judge answers."""
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
