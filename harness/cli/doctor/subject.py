"""Selection of the endpoints, folders and environments to check: those of a target, or by default those of `bench run`.
Settings are resolved as for a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.cli.doctor.endpoints import EndpointQuery
from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.cli.doctor.hub import HubDataset, find_datasets
from harness.cli.doctor.packages import WantedEnvironment
from harness.core.errors import HarnessError
from harness.settings.built_in import built_in
from harness.settings.command_line import command_line
from harness.settings.endpoint_selection import MODEL, Layers, serve
from harness.settings.endpoints import Endpoint, Registry, load_registry
from harness.settings.layers import value_at
from harness.settings.paths import looks_like_path
from harness.settings.resolver import OUTPUT_DIR, ResolvedRun, resolve
from harness.settings.sections import builtins

DEFAULT_IN_FLIGHT = 32
"""Default number of concurrent requests of one run."""

_NAMING = ("model", "api_base_url", "api_key_var")


@dataclass(slots=True)
class Subject:
    """Endpoints, folders, environments and datasets to check."""

    asked: list[EndpointQuery] = field(default_factory=list[EndpointQuery])
    output_dirs: list[Path] = field(default_factory=list[Path])
    environments: list[WantedEnvironment] = field(default_factory=list[WantedEnvironment])
    datasets: dict[str, HubDataset] = field(default_factory=dict[str, HubDataset])
    """Hub datasets of the runs, by id."""
    pushes: list[str | None] = field(default_factory=list[str | None])
    """Repositories of planned pushes; None for the default name."""
    in_flight: int = 0
    findings: list[Diagnosis] = field(default_factory=list[Diagnosis])
    """Findings made during the selection."""

    @property
    def urls(self) -> list[str]:
        """Base URLs of the endpoints."""
        return [each.endpoint.url for each in self.asked if each.endpoint.url]

    @contextmanager
    def reported(self, name: str, finding: Callable[[str, str, str, str], Diagnosis] = problem) -> Generator[None]:
        """Convert an error in the `with` block to a finding about `name`, with the advice from the error's message."""
        try:
            yield
        except HarnessError as error:
            words = str(error).removeprefix("bench run: ").removeprefix(f"{name}: ")
            marks = [words.find(mark) for mark in ("run: bench ", "`bench env install PATH`", "did you mean ")]
            at = min((mark for mark in marks if mark > 0), default=None)
            says = words if at is None else words[:at].rstrip("; ")
            fix = "correct this, and check again" if at is None else words[at:]
            self.findings.append(finding("settings", name, says, fix))

    def ask(self, endpoint: Endpoint, whom: str, *, is_asked: bool = True) -> None:
        """Add a query of a model, or merge it with an equal one, since runs and aliases often share a model."""
        for index, known in enumerate(self.asked):
            if _identity(known.endpoint) == _identity(endpoint):
                whom = known.whom if whom in known.whom.split(", ") else f"{known.whom}, {whom}"
                self.asked[index] = replace(known, whom=whom, is_asked=known.is_asked or is_asked)
                return
        self.asked.append(EndpointQuery(endpoint, whom, is_asked))


def _identity(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.url.rstrip("/"), endpoint.model, endpoint.key_var, dict(endpoint.headers)


def find_subject(
    target: str | None, flags: Mapping[str, object], sets: Sequence[str] = (), *, registry: bool = False
) -> Subject:
    """Select the endpoints, folders and environments to check.

    Args:
        target: A suite file, or environments separated by commas; None for the defaults.
        flags: Values of options by setting key, as `resolve` takes them.
        sets: `--set` texts.
        registry: Also query every endpoint of the registry.
    """
    subject = Subject()
    if target is not None:
        for run in _runs(target, flags, sets, subject):
            _add_run(subject, run)
    if target is None and (not registry or any(flags.get(name) for name in _NAMING)):
        _add_default(subject, flags)
    if registry:
        _add_registry(subject, flags)
    if not subject.output_dirs:
        subject.output_dirs.append(Path(str(flags.get("output_dir") or OUTPUT_DIR.default)))
    subject.in_flight = subject.in_flight or DEFAULT_IN_FLIGHT
    return subject


def _runs(target: str, flags: Mapping[str, object], sets: Sequence[str], subject: Subject) -> list[ResolvedRun]:
    """Return the runs of a target; for a list of environments, only those that can be resolved."""
    runs: list[ResolvedRun] = []
    is_file = target.endswith(".toml")
    words = [target] if is_file else [word.strip() for word in target.split(",") if word.strip()] or [target]
    for word in words:
        with subject.reported(word):
            resolution = resolve(word, flags, sets)
            runs += resolution.runs
            subject.findings += [note("settings", word, notice) for notice in resolution.notices]
    if is_file and runs:
        count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        subject.findings.append(ok("settings", target, f"{count}, all settings are valid"))
    return runs


def _add_run(subject: Subject, run: ResolvedRun) -> None:
    settings = run.settings
    name = settings.env.name
    for endpoint in run.endpoints:
        subject.ask(endpoint, run.alias or name)
    if settings.save.save_results:
        folder = Path(settings.save.output_dir)
        if folder not in subject.output_dirs:
            subject.output_dirs.append(folder)
    if settings.save.save_to_hf_hub:
        subject.pushes.append(settings.save.hf_hub_dataset_name)
    subject.in_flight += max(0, settings.model.max_concurrent_generation)
    if run.found is not None and built_in(run.found) is None:
        ids, has_sample = find_datasets(run.found.source_files, settings.env.env_args)
        for each in ids:
            dataset = subject.datasets.setdefault(each, HubDataset(each, has_sample=has_sample))
            if run.env_id not in dataset.environments:
                dataset.environments.append(run.env_id)
    if run.found is not None and not any(each.found == run.found for each in subject.environments):
        env_id = settings.env.env_id
        shown = env_id if looks_like_path(env_id) else run.env_id
        subject.environments.append(WantedEnvironment(env_id, shown, run.found, built_in(run.found) is not None))


def _add_default(subject: Subject, flags: Mapping[str, object]) -> None:
    """Add the model that a run with these flags would use."""
    with subject.reported("model"):
        registry = _registry(flags)
        cli = command_line({key: value for key, value in flags.items() if key != "endpoints_path"})
        served = serve(Layers(builtins(), {}, cli, {}, {}, {}), registry)
        named = any(flags.get(name) for name in _NAMING)
        asked_for = str(value_at(served.merged, MODEL))
        for endpoint in served.endpoints:
            whom = served.alias or (asked_for if named else "the default model of runs")
            subject.ask(endpoint, whom, is_asked=named)


def _add_registry(subject: Subject, flags: Mapping[str, object]) -> None:
    with subject.reported("registry"):
        registry = _registry(flags)
        if not registry.entries:
            fix = "write configs/endpoints.toml, or name a registry with -e"
            subject.findings.append(note("settings", "registry", "the registry contains no endpoint", fix))
        for alias in registry.entries:
            with subject.reported(f"alias {alias}", note):
                served = serve(Layers(builtins(), {}, command_line({"model": alias}), {}, {}, {}), registry)
                for endpoint in served.endpoints:
                    subject.ask(endpoint, alias)


def _registry(flags: Mapping[str, object]) -> Registry:
    typed = flags.get("endpoints_path")
    return load_registry(Path.cwd() / str(typed) if typed else None, Path.cwd())
