"""`evaluate()` and `aevaluate()`: `bench run` called from Python, with the same plan, engine, journal and budget."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import uvloop

from harness.agents.settings import code_digests, code_files
from harness.cli.call_arguments import described, plain, read_environments
from harness.cli.call_display import progress_of
from harness.cli.caller_client import endpoint_of
from harness.cli.execute import check_hub, push_runs, record_suite
from harness.cli.options import check_resuming
from harness.cli.trust import check_trust, recorded_in
from harness.core.errors import HarnessError, UsageError
from harness.core.messages import Labels
from harness.engine.budget import Budget
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.load_environments import Loader
from harness.engine.prepare import FailedRun, LiveRun, StartOptions
from harness.engine.progress import RunState
from harness.envs.environment import Environment
from harness.report.final_table import RunReport, final_table
from harness.report.frames import messages_df, rollouts_df
from harness.report.text import make_console
from harness.settings.environment_sources import FoundEnvironment
from harness.settings.packages import find_environment
from harness.settings.resolver import Resolution, missing_keys, resolve
from harness.store.rundir import new_run_id

if TYPE_CHECKING:
    from harness.report.frames.fields import Backend, Frame
    from harness.stats.summary import Summary

T = TypeVar("T")

LABELS = Labels({"resume": "resume=True", "retry_failed": "retry_failed=True", "trust": "trust=True"})
"""How messages spell options in calls from Python; settings have their TOML names."""


@dataclass(frozen=True, slots=True)
class EvaluatedRun:
    """Result of evaluating one model on one environment."""

    name: str
    """Name of the run, as in tables."""
    env_id: str
    model: str
    state: RunState
    """`done`, `stopped` (early, by a budget or a broken endpoint), `interrupted` or `failed`."""
    note: str
    """Why the run failed or stopped early; "" for a complete run."""
    path: Path | None
    """The run folder; None with `save_results=False`."""
    summary: Summary | None
    """Statistics, as in `summary.json`; None if the run failed."""

    def rows(self, *, backend: Backend = "pandas") -> Frame:
        """Data frame with one row per rollout; see `harness.results.rollouts_df`.

        Raises:
            UsageError: the run was not saved.
        """
        return rollouts_df(self._saved(), backend=backend)

    def messages(self, *, backend: Backend = "pandas") -> Frame:
        """Data frame with one row per message; see `harness.results.messages_df`.

        Raises:
            UsageError: the run was not saved.
        """
        return messages_df(self._saved(), backend=backend)

    def _saved(self) -> Path:
        if self.path is None:
            raise UsageError(f"the rollouts of {self.name} were not saved; remove save_results=False")
        return self.path


class EvaluatedRuns(Sequence[EvaluatedRun]):
    """The runs of one call, in the order of the environments. Printing the object shows the table of `bench run`."""

    def __init__(self, runs: Sequence[EvaluatedRun], reports: Sequence[RunReport]) -> None:
        self._runs = tuple(runs)
        self._reports = reports

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> EvaluatedRun: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[EvaluatedRun]: ...
    def __getitem__(self, index: int | slice) -> EvaluatedRun | Sequence[EvaluatedRun]:
        return self._runs[index]

    def __iter__(self) -> Iterator[EvaluatedRun]:
        return iter(self._runs)

    def __repr__(self) -> str:
        console = make_console()
        with console.capture() as capture:
            final_table(self._reports, console)
        return capture.get().rstrip()

    @property
    def paths(self) -> list[Path]:
        """Folders of the runs that were saved."""
        return [run.path for run in self._runs if run.path is not None]

    def rows(self, *, backend: Backend = "pandas") -> Frame:
        """Data frame with one row per rollout of all runs; see `harness.results.rollouts_df`.

        Raises:
            UsageError: no run was saved.
        """
        return rollouts_df(self._saved(), backend=backend)

    def messages(self, *, backend: Backend = "pandas") -> Frame:
        """Data frame with one row per message of all runs; see `harness.results.messages_df`.

        Raises:
            UsageError: no run was saved.
        """
        return messages_df(self._saved(), backend=backend)

    def _saved(self) -> list[Path]:
        if not self.paths:
            raise UsageError("no rollouts were saved; remove save_results=False")
        return self.paths


async def aevaluate(  # noqa: PLR0913 - the settings of a call are its parameters
    environments: str | Path | Environment | Sequence[str | Path | Environment],
    model: str | None = None,
    *,
    client: object = None,
    resume: bool = False,
    resume_from: str | Path | None = None,
    retry_failed: bool = False,
    trust: bool = False,
    progress: bool = True,
    **settings: object,
) -> EvaluatedRuns:
    """Evaluate a model on environments, inside the running event loop.

    Args:
        environments: Names, paths or `Environment` objects, or one suite file (`.toml`). Names may be joined by commas.
        model: Name of the model, or an alias of the endpoint registry.
        client: Client of the model, in place of an address: an `openai.AsyncOpenAI` or `OpenAI`, whose address and key
            are used; an `ExternalLLMClient`; or an object with `async request(call) -> ModelResponse`.
        resume: Resume the newest run with the same settings, if there is one.
        resume_from: Folder or id of the run to resume.
        retry_failed: Repeat failed rollouts of a resumed run.
        trust: Run the code and send the keys that the recorded settings of a run from another machine name.
        progress: Show the progress: a bar in a notebook, lines on stderr elsewhere.
        **settings: Settings by their TOML names (`num_examples=100`, `sampling_args={...}`, `max_cost=5`).

    Returns:
        The runs, in order. A run that a budget or a broken endpoint stopped early says so in `state` and `note`, and so
        does one of several whose environment cannot be loaded.

    Raises:
        HarnessError: a setting is invalid or no run can start. No request was sent.
    """
    with _spelled():
        check_resuming(resume=resume, resume_from=resume_from, retry_failed=retry_failed)
    start = StartOptions(
        " ".join(sys.argv),
        suite_id=new_run_id(),
        resume=resume,
        resume_from=None if resume_from is None else str(resume_from),
        retry_failed=retry_failed,
    )
    with _spelled():
        call = _Call(environments, model, client, settings)
        return await call.run(replace(start, is_ours=call.is_ours(trusted=trust)), progress=progress)


def evaluate(
    environments: str | Path | Environment | Sequence[str | Path | Environment],
    model: str | None = None,
    **arguments: Any,
) -> EvaluatedRuns:
    """Evaluate a model on environments, and wait for the results. Also works in a notebook, whose event loop is blocked
    meanwhile.

    Args:
        environments: See `aevaluate`.
        model: See `aevaluate`.
        **arguments: See `aevaluate`.

    Raises:
        HarnessError: see `aevaluate`.
    """
    return _wait(aevaluate(environments, model, **arguments))


class _Call:
    """One call of `evaluate()`: its environments, model and resolved settings."""

    def __init__(
        self,
        environments: str | Path | Environment | Sequence[str | Path | Environment],
        model: str | None,
        client: object,
        settings: Mapping[str, object],
    ) -> None:
        names, self._objects = read_environments(environments)
        if not isinstance(model, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"model: must be the name of a model, not {described(model)}; pass a client as client=…")
        flags: dict[str, object] = {name: plain(value) for name, value in settings.items()} | {"model": model}
        if any(each.env_args for each in self._objects.values()):
            if len(names) > 1 or "env_args" in settings:
                raise UsageError("an environment object with arguments must be evaluated alone, and without env_args")
            flags["env_args"] = self._objects[names[0]].env_args
        endpoint = None if client is None else endpoint_of(client, model)
        if endpoint is not None:
            if any(name.endswith(".toml") for name in names):
                raise UsageError("client: a suite file already names its models; pass environments instead of the file")
            flags |= {"model": endpoint.model, "api_base_url": endpoint.url, "api_key_var": ""}
        resolved = resolve(
            ",".join(names), flags, given={name: _found(name, each) for name, each in self._objects.items()}
        )
        if endpoint is not None:
            resolved = replace(resolved, runs=tuple(replace(run, endpoints=(endpoint,)) for run in resolved.runs))
        self._resolution: Resolution = resolved
        self._file = names[0] if len(names) == 1 and names[0].endswith(".toml") else None

    def is_ours(self, *, trusted: bool) -> bool:
        """Return whether the runs count as made on this machine.

        Raises:
            UsageError: the settings are those of a run from another machine, and the user does not trust them.
        """
        file = self._file
        recorded = None if file is None else recorded_in(file)
        if file is None or recorded is None:
            return True
        return check_trust(recorded, self._resolution, trusted=trusted, asks_model=True, file=Path(file))

    async def run(self, start: StartOptions, *, progress: bool) -> EvaluatedRuns:
        """Evaluate all runs, push those that request it, and return them."""
        resolution, loader = self._resolution, Loader()
        begun: list[LiveRun | FailedRun] = []
        for run in resolution.runs:
            if (environment := self._objects.get(run.settings.env.env_id)) is not None:
                if run.settings.env.is_isolated:
                    raise UsageError("isolate and workers require an environment's name, not an object")
                environment.set_kwargs(**run.settings.env.extra_env_kwargs)
                loader.give(run, environment)
        await asyncio.to_thread(check_hub, resolution)
        missing_keys(resolution, os.environ)
        budget = Budget(resolution.limits)
        evaluation = Evaluation(resolution.runs, loader, budget=budget, start=start, needs_all=False)
        with progress_of(evaluation, budget, shown=progress) as display:
            for notice in resolution.notices:
                display.say(f"note: {notice}")

            def finished(*_: object) -> None:
                display.step()

            evaluation.listener = EvaluationListener(
                admit=lambda runs, _: begun.extend(runs),
                begin=lambda _: record_suite(resolution, start.command, str(start.suite_id), begun),
                finished=finished,
            )
            runs = await evaluation.run()
            failures = await asyncio.to_thread(push_runs, runs, display)
        if failures:
            raise failures[0][1]
        return EvaluatedRuns([_ended(run) for run in begun], [_report(run) for run in begun])


def _ended(run: LiveRun | FailedRun) -> EvaluatedRun:
    progress = run.progress
    path = run.folder.path if isinstance(run, LiveRun) and run.is_saved else None
    summary = run.summary if isinstance(run, LiveRun) else None
    return EvaluatedRun(progress.name, progress.env_id, progress.model, progress.state, progress.note, path, summary)


def _report(run: LiveRun | FailedRun) -> RunReport:
    progress = run.progress
    if isinstance(run, FailedRun):
        return RunReport(progress.name, progress.env_id, progress.model, state="failed", note=progress.note)
    path = str(run.folder.path) if run.is_saved else None
    return RunReport(
        progress.name, progress.env_id, progress.model, path, run.summary, progress.state, progress.note,
        error=progress.first_error, unfinished=run.manifest.given_up,
    )  # fmt: skip


def _found(name: str, environment: Environment) -> FoundEnvironment:
    """Describe an environment object in the form in which named environments are described. An object made by the
    `load_environment` of an installed environment counts as that environment."""
    with contextlib.suppress(HarnessError):
        found = find_environment(name)
        if found is not None and found.source_files and {*found.source_files} <= {*environment.source_files}:
            return found
    code = [type(environment), *environment.rubric.functions]
    return FoundEnvironment(name, source_files=tuple(dict.fromkeys(code_files(code))), code=code_digests(code))


@contextmanager
def _spelled() -> Generator[None]:
    """In the `with` block, make errors spell settings as Python arguments instead of command-line options."""
    try:
        yield
    except HarnessError as error:
        error.labels = LABELS
        raise


def _wait(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end; in a separate thread if an event loop is running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(coroutine)
    results: list[T] = []
    errors: list[BaseException] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[object]]] = []

    async def whole() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        return await coroutine

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                results.append(runner.run(whole()))
        except BaseException as error:  # boundary: raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=work, name="bench-evaluate")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
