"""What is to be looked at: endpoints, folders and environments of a target, or of what `bench run` would use unless one
says otherwise. Owns this choice; settings are resolved as for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.cli.doctor.credentials import WantedKey as Key
from harness.cli.doctor.datasets import HubDataset, find_datasets
from harness.cli.doctor.endpoints import EndpointQuery
from harness.cli.doctor.environments import WantedEnvironment as Environment
from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.errors import HarnessError
from harness.core.loopback import is_loopback_url
from harness.settings.built_in import built_in
from harness.settings.endpoints import Endpoint, Registry, load_registry
from harness.settings.flags import command_line
from harness.settings.layers import value_at
from harness.settings.packages import FoundEnvironment
from harness.settings.paths import looks_like_path
from harness.settings.resolver import OUTPUT_DIR, ResolvedRun, resolve
from harness.settings.sections import builtins
from harness.settings.serving import MODEL, Layers, serve

DEFAULT_IN_FLIGHT = 32
"""Requests in flight of one run, unless it says otherwise."""

_NAMING = ("model", "api_base_url", "api_key_var")


@dataclass(slots=True)
class Subject:
    """What an examination is about."""

    asked: list[EndpointQuery] = field(default_factory=list[EndpointQuery])
    output_dirs: list[Path] = field(default_factory=list[Path])
    environments: list[Environment] = field(default_factory=list[Environment])
    datasets: dict[str, HubDataset] = field(default_factory=dict[str, HubDataset])
    """What runs load from the Hub, by id."""
    pushes: list[str | None] = field(default_factory=list[str | None])
    """Repositories that runs push to; None for the default name."""
    in_flight: int = 0
    findings: list[Diagnosis] = field(default_factory=list[Diagnosis])
    """What was found out on the way."""

    @property
    def keys(self) -> list[Key]:
        """The variables that hold the keys of its endpoints."""
        return [
            Key(each.endpoint.key_var, each.host, each.is_asked, is_loopback_url(each.endpoint.url))
            for each in self.asked
            if each.endpoint.key_var
        ]

    @property
    def urls(self) -> list[str]:
        """The endpoints' addresses."""
        return [each.endpoint.url for each in self.asked if each.endpoint.url]

    def ask(self, endpoint: Endpoint, whom: str, *, is_asked: bool = True) -> None:
        """Have a model asked, unless it will be: runs and aliases often share one."""
        for index, known in enumerate(self.asked):
            if _same(known.endpoint, endpoint):
                whom = known.whom if whom in known.whom.split(", ") else f"{known.whom}, {whom}"
                self.asked[index] = replace(known, whom=whom, is_asked=known.is_asked or is_asked)
                return
        self.asked.append(EndpointQuery(endpoint, whom, is_asked))


def _same(one: Endpoint, other: Endpoint) -> bool:
    return (one.url.rstrip("/"), one.model, one.key_var, dict(one.headers)) == (
        other.url.rstrip("/"), other.model, other.key_var, dict(other.headers)
    )  # fmt: skip


def find_subject(
    target: str | None, flags: Mapping[str, object], sets: Sequence[str] = (), *, registry: bool = False
) -> Subject:
    """What to look at.

    Args:
        target: A suite file, or environments separated by commas; None for none.
        flags: Values of options by setting key, as `resolve` takes them.
        sets: `--set` texts.
        registry: Whether every endpoint of the registry is to be asked as well.
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
    """The runs of a target. Of a list of environments, those that can be resolved."""
    runs: list[ResolvedRun] = []
    is_file = target.endswith(".toml")
    words = [target] if is_file else [word.strip() for word in target.split(",") if word.strip()] or [target]
    for word in words:
        try:
            resolution = resolve(word, flags, sets)
        except HarnessError as error:
            says, fix = _split(str(error).removeprefix("bench run: "), word)
            subject.findings.append(problem("settings", word, says, fix))
            continue
        runs += resolution.runs
        subject.findings += [note("settings", word, notice) for notice in resolution.notices]
    if is_file and runs:
        count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        subject.findings.append(ok("settings", target, f"{count}, every setting as it should be"))
    return runs


def _split(message: str, about: str = "") -> tuple[str, str]:
    """What is wrong, and what to do about it, where a message says both; `about` is what it need not repeat."""
    words = message.removeprefix(f"{about}: ")
    marks = [at for mark in ("run: bench ", "Install it with ", "did you mean ") if (at := words.find(mark)) > 0]
    if not marks:
        return words, "correct that, and look again"
    return words[: min(marks)].rstrip("; "), words[min(marks) :]


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
    bound = settings.model.max_concurrent_generation
    subject.in_flight += max(0, bound)
    if run.found is not None and built_in(run.found) is None:
        _add_datasets(subject, run, run.found)
    if run.found is not None and not any(each.found == run.found for each in subject.environments):
        env_id = settings.env.env_id
        shown = env_id if looks_like_path(env_id) else run.env_id
        subject.environments.append(Environment(env_id, shown, run.found, built_in(run.found) is not None))


def _add_datasets(subject: Subject, run: ResolvedRun, found: FoundEnvironment) -> None:
    ids, has_sample = find_datasets(found.source_files, run.settings.env.env_args)
    for name in ids:
        dataset = subject.datasets.setdefault(name, HubDataset(name, has_sample=has_sample))
        if run.env_id not in dataset.environments:
            dataset.environments.append(run.env_id)


def _add_default(subject: Subject, flags: Mapping[str, object]) -> None:
    """The model that a run would ask, were one made with these flags."""
    try:
        registry = _registry(flags)
        cli = command_line({key: value for key, value in flags.items() if key != "endpoints_path"})
        served = serve(Layers(builtins(), {}, cli, {}, {}, {}), registry)
    except HarnessError as error:
        says, fix = _split(str(error))
        subject.findings.append(problem("settings", "model", says, fix))
        return
    named = any(flags.get(name) for name in _NAMING)
    asked_for = str(value_at(served.merged, MODEL))
    for endpoint in served.endpoints:
        whom = served.alias or (asked_for if named else "the model that runs ask unless told otherwise")
        subject.ask(endpoint, whom, is_asked=named)


def _add_registry(subject: Subject, flags: Mapping[str, object]) -> None:
    try:
        registry = _registry(flags)
    except HarnessError as error:
        says, fix = _split(str(error))
        subject.findings.append(problem("settings", "registry", says, fix))
        return
    if not registry.entries:
        fix = "write configs/endpoints.toml, or name a registry with -e"
        subject.findings.append(note("settings", "registry", "there is no endpoint in it", fix))
    for alias in registry.entries:
        try:
            served = serve(Layers(builtins(), {}, command_line({"model": alias}), {}, {}, {}), registry)
        except HarnessError as error:
            says, fix = _split(str(error))
            subject.findings.append(note("settings", f"alias {alias}", says, fix))
            continue
        for endpoint in served.endpoints:
            subject.ask(endpoint, alias)


def _registry(flags: Mapping[str, object]) -> Registry:
    typed = flags.get("endpoints_path")
    return load_registry(Path.cwd() / str(typed) if typed else None, Path.cwd())
