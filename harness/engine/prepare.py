"""Prepare runs before the first request: environment, plan, identity and folder, new or resumed. Decides whether a
resume is allowed; makes no call and starts no task. Runs in the main thread before the event loop: constructors of
environments may install signal handlers. An environment that fails to load becomes a failed run, and the other runs
continue; an invalid setting stops the invocation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.core.errors import ConfigError, HarnessError, ResumeRefused, UsageError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.derived import Derivation, plan_from, take_over
from harness.engine.judges import JudgeBinding, identity_with, seats_of
from harness.engine.loading import Loader
from harness.engine.plan import Plan, identity_of
from harness.engine.privacy import stay_private
from harness.engine.progress import RunProgress
from harness.engine.provenance import IN_PLACE, git_state, versions_of
from harness.engine.worklist import check_growth
from harness.envs.environment import Environment
from harness.models.wire import check_settings_of_sampling
from harness.reference.policies import parse_model
from harness.settings.resolver import ResolvedRun
from harness.stats.summary import Summary
from harness.stats.target import StoppingRule, finite_limits
from harness.store.dataset import DatasetWriter
from harness.store.finding import find_run
from harness.store.manifest import Manifest
from harness.store.recorded import Recorded
from harness.store.resume import differences, find_resumable, resume_obstacle
from harness.store.rows import RowShape
from harness.store.rundir import RunDir, RunLock, folder_name, timestamp
from harness.store.scratch import Scratch, remove_stale
from harness.store.tally import aim_of


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Start options of an invocation, apart from the settings of its runs."""

    command: str = ""
    """The command line as it was typed."""
    suite_id: str | None = None
    resume: bool = False
    """Resume the newest run with the same settings, if one exists."""
    resume_from: str | None = None
    """Run to resume: a path, an id or the beginning of an id."""
    retry_failed: bool = False
    """Retry failed rollouts, and score unscored ones again."""
    derive: Derivation | None = None
    """Derive the run from another run's journal; None for an ordinary run."""
    budget: JsonDict = field(default_factory=dict[str, object])
    """The invocation's budget, for the manifest; empty without bounds."""
    is_ours: bool = True
    """Whether the settings count as made on this machine; see `store.known_runs`."""


@dataclass(slots=True)
class Prepared:
    """One run that is ready to start."""

    resolved: ResolvedRun
    progress: RunProgress
    environment: Environment
    plan: Plan
    folder: RunDir
    manifest: Manifest
    lock: RunLock
    recorded: Recorded | None
    retry_failed: bool
    scratch: Scratch | None
    """Temporary folder of a run that is not saved; None for a saved run."""
    writer: DatasetWriter | None = None
    """Updates the dataset during the run; None if nothing is saved."""
    summary: Summary | None = None
    """Summary of the ended run; None before."""
    judges: tuple[JudgeBinding, ...] = ()
    """The judge models of the run's rubric."""
    derive: Derivation | None = None
    """Parent run and kind of derivation; None for an ordinary run."""
    fail_fast: bool = False
    """Stop the run at its first rollout without a score; other runs continue."""
    on_recorded: Callable[[Recorded], None] | None = None
    """Receives the whole journal of the ended run, before that of an unsaved run is deleted."""

    @property
    def asks_model(self) -> bool:
        """Whether a model plays the run; a derived run may use recorded replies or only score."""
        return self.derive is None or self.derive.asks_model

    @property
    def is_saved(self) -> bool:
        """Whether the run's files are kept on disk."""
        return self.scratch is None


@dataclass(slots=True)
class FailedRun:
    """A run that failed before its first request, with its error."""

    resolved: ResolvedRun
    progress: RunProgress
    error: HarnessError


def progress_of(resolved: ResolvedRun) -> RunProgress:
    """Empty counters for a run."""
    settings = resolved.settings
    return RunProgress(settings.env.name, resolved.env_id, settings.model.model)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One run with its loaded environment, plan and manifest."""

    resolved: ResolvedRun
    progress: RunProgress
    environment: Environment
    plan: Plan
    manifest: Manifest
    judges: tuple[JudgeBinding, ...]


@dataclass(frozen=True, slots=True)
class Located:
    """A loaded run with the earlier run that it resumes, if any."""

    loaded: Loaded
    folder: RunDir | None
    """Folder of the earlier run; None for a new run."""
    lock: RunLock | None
    recorded: Recorded | None


def prepare(
    runs: Sequence[ResolvedRun],
    progress: Sequence[RunProgress],
    options: StartOptions,
    loader: Loader | None = None,
    admit: Callable[[Sequence[Located | FailedRun]], None] | None = None,
) -> list[Prepared | FailedRun]:
    """Load, plan and open the runs of one invocation, in that order, so that a refusal leaves no empty folder behind.

    Args:
        runs: Resolved settings of each run.
        progress: Counters of each run, in the same order.
        options: Start options of the invocation.
        loader: Source of the environments; by default each is imported.
        admit: Called when every run is validated, before a folder is made; may raise to refuse all runs.

    Returns:
        Each run, or the failure that prevents it.

    Raises:
        UsageError: the request is invalid: a setting, or a resume of another run.
        StoreError: a run folder cannot be made.
    """
    _learn_secrets(runs)
    remove_stale()
    loader = loader or Loader()
    try:
        return _prepared(runs, progress, options, loader, admit)
    except BaseException:
        loader.give_up()
        raise


def _prepared(
    runs: Sequence[ResolvedRun],
    progress: Sequence[RunProgress],
    options: StartOptions,
    loader: Loader,
    admit: Callable[[Sequence[Located | FailedRun]], None] | None,
) -> list[Prepared | FailedRun]:
    loader.expect(runs)
    loaded = [_load(each, counters, loader, options) for each, counters in zip(runs, progress, strict=True)]
    _check_resume_from(loaded, options)
    taken: set[Path] = set()
    located = [each if isinstance(each, FailedRun) else _located(each, options, taken) for each in loaded]
    try:
        if admit is not None:
            admit(located)
    except BaseException:
        for each in located:
            if isinstance(each, Located) and each.lock is not None:
                each.lock.release()
        raise
    return [each if isinstance(each, FailedRun) else _open(each, options) for each in located]


def _learn_secrets(runs: Sequence[ResolvedRun]) -> None:
    """Register secrets for redaction before foreign code runs and can print variables of the process."""
    redactor.add_named(os.environ)
    for run in runs:
        redactor.add_named(run.settings.env.env_args)
        redactor.add_named(run.settings.env.extra_env_kwargs)
        for endpoint in run.endpoints:
            redactor.add(os.environ.get(endpoint.key_var or "", ""))
            redactor.add_headers(endpoint.headers)
        redactor.add_headers(run.settings.model.extra_headers)


def _failed(resolved: ResolvedRun, progress: RunProgress, error: HarnessError) -> FailedRun:
    """Convert an error to a failed run; raises a usage error, which concerns the whole request."""
    if error.exit_code == UsageError.exit_code:
        raise error  # stop the invocation before anything starts
    progress.state, progress.note = "failed", redactor.text(str(error))
    return FailedRun(resolved, progress, error)


def _load(resolved: ResolvedRun, progress: RunProgress, loader: Loader, options: StartOptions) -> Loaded | FailedRun:
    try:
        resolved.require_secrets(asks_model=options.derive is None or options.derive.asks_model)
        environment = loader.load(resolved)
        _check_reference(resolved, environment)
        check_settings_of_sampling({**environment.sampling_args, **resolved.settings.model.sampling_args})
        identity = identity_of(resolved, environment)
        if options.derive is None:
            plan = Plan(environment, resolved, identity)
        else:
            plan, environment = plan_from(options.derive, environment, identity)
            identity["derived"] = options.derive.identity()
        judges = seats_of(resolved, environment, os.environ)
        identity = identity_with(identity, judges)
        plan.check()
    except HarnessError as error:
        return _failed(resolved, progress, error)
    manifest = replace(_manifest(resolved, environment, plan, options), identity=identity)
    RowShape.of(manifest)  # refuse clashing column names before any request is paid
    progress.total = plan.total
    progress.limits = finite_limits(manifest.reward_range)
    aim = aim_of(manifest)
    progress.target = None if aim is None else StoppingRule(aim)
    return Loaded(resolved, progress, environment, plan, manifest, judges)


def _check_reference(resolved: ResolvedRun, environment: Environment) -> None:
    if not resolved.is_reference:
        return
    model = resolved.endpoints[0].model
    policy = parse_model(model).name
    if policy == "judge":
        raise ConfigError(f"{model} judges and plays nothing; to be judged by it, name it as judge_model")
    if policy in {"oracle", "noisy"} and not environment.has_reference:
        raise ConfigError(
            f"{resolved.env_id} has no reference policy, so {model} cannot play it; "
            "implement reference_reply, or use reference/null, reference/echo or a model at an endpoint (-b)"
        )


def _check_resume_from(loaded: Sequence[Loaded | FailedRun], options: StartOptions) -> None:
    if options.resume_from is not None and len(loaded) > 1:
        raise UsageError(
            f"--resume-from {options.resume_from} names one run, and this invocation has {len(loaded)}; "
            "--resume finds the earlier run of each"
        )


def _located(loaded: Loaded, options: StartOptions, taken: set[Path]) -> Located | FailedRun:
    try:
        return _locate(loaded, options, taken)
    except HarnessError as error:
        return _failed(loaded.resolved, loaded.progress, error)


def _locate(loaded: Loaded, options: StartOptions, taken: set[Path]) -> Located:
    save = loaded.resolved.settings.save
    folder = None
    if save.save_results and options.resume_from is not None:
        folder = _named(save.output_dir, options.resume_from, loaded.manifest)
    elif save.save_results and options.resume:
        folder = _newest(save.output_dir, loaded.manifest)
    elif options.resume or options.resume_from is not None:
        raise UsageError("--resume needs the journal of an earlier run, and --no-save keeps none")
    if folder is None:
        return Located(loaded, None, None, None)
    if folder.path in taken:
        raise ResumeRefused(
            f"--resume: two runs called {loaded.manifest.name!r} would both go on with {folder.path}; give each a "
            "`name`, or go on with one at a time: bench resume RUN"
        )
    taken.add(folder.path)
    lock = folder.lock()
    recorded = None
    try:
        if not folder.journal_path.exists() and (folder.has_data() or folder.read_summary() is not None):
            raise ResumeRefused(
                f"{folder.path} has results but no journal.jsonl, so nothing says what was done; restore the journal "
                "from a copy, or start a new run"
            )
        if folder.journal_path.exists():
            recorded = Recorded.load(folder.journal_path)
            check_growth(loaded.plan, recorded, folder.read_manifest().planned)
        resolved, manifest = stay_private(loaded.resolved, loaded.manifest, folder)
        loaded = replace(loaded, resolved=resolved, manifest=manifest)
    except BaseException:
        lock.release()
        raise
    return Located(loaded, folder, lock, recorded)


def _open(located: Located, options: StartOptions) -> Prepared:
    loaded = located.loaded
    settings, manifest = loaded.resolved.settings, loaded.manifest
    scratch = None if settings.save.save_results else Scratch()
    folder, lock = located.folder, located.lock
    if folder is None or lock is None:
        output_dir = settings.save.output_dir if scratch is None else scratch.name
        private = settings.save.private
        folder = RunDir.create(output_dir, loaded.resolved.env_id, settings.model.model, private=private)
        lock = folder.lock()
    else:
        manifest = _continued(manifest, folder.read_manifest())
        if settings.save.private:
            folder.close_to_others()  # restore modes lost in a copy, or make an open run private
    derive, recorded = options.derive, located.recorded
    manifest = replace(manifest, id=folder.id)
    named = {seat.alias: seat.endpoints for seat in loaded.judges if seat.alias is not None and not seat.spec.key}
    # A folder is a run once it has a manifest, so write the manifest after the settings that a resume reads.
    folder.write_config(loaded.resolved.to_toml(named), is_ours=options.is_ours and scratch is None)
    folder.write_manifest(manifest)
    if derive is not None and derive.how == "rescore" and not folder.journal_path.exists():
        take_over(derive, folder.journal_path)
        recorded = Recorded.load(folder.journal_path)
    return Prepared(
        loaded.resolved, loaded.progress, loaded.environment, loaded.plan, folder, manifest, lock, recorded,
        options.retry_failed, scratch, judges=loaded.judges, derive=derive,
    )  # fmt: skip


def _continued(manifest: Manifest, earlier: Manifest) -> Manifest:
    """Make the manifest of a resumed run. If it is resumed from its own `config.toml`, keep the origins, suite and
    command that its first manifest recorded, since the file only repeats the first command's settings."""
    manifest = replace(manifest, created=earlier.created, parent=earlier.parent, given_up=earlier.given_up)
    own = f"{earlier.id}/config.toml: "
    noted = [path for path, origin in manifest.origins.items() if own in str(origin["source"])]
    if not noted:
        return manifest
    noted += [path for path, origin in manifest.origins.items() if origin["source"] == IN_PLACE]
    same = [path for path in noted if manifest.settings[path] == earlier.settings.get(path, manifest)]
    kept = {path: earlier.origins[path] for path in same if path in earlier.origins}
    return replace(
        manifest, origins={**manifest.origins, **kept}, suite=earlier.suite, command=earlier.command or manifest.command
    )


def _named(output_dir: str, name: str, manifest: Manifest) -> RunDir:
    """Return the folder named by `--resume-from`, if its run has the requested identity."""
    folder = RunDir(find_run(output_dir, name))
    changed = differences(folder.read_manifest().identity, manifest.identity)
    if changed:
        raise ResumeRefused(
            f"{folder.path} cannot be resumed: {'; '.join(changed)}. Start a new run, or change it back"
        )
    return folder


def _newest(output_dir: str, manifest: Manifest) -> RunDir | None:
    parent = Path(output_dir) / "evals" / folder_name(manifest.env_id, manifest.model)
    found = find_resumable(parent, manifest)
    if found is not None:
        return RunDir(found)
    obstacle = resume_obstacle(parent, manifest)
    if obstacle is not None:
        raise ResumeRefused(f"{obstacle}. Start a new run without --resume, or change it back")
    return None


def _manifest(resolved: ResolvedRun, environment: Environment, plan: Plan, options: StartOptions) -> Manifest:
    settings = resolved.settings
    described = resolved.described()
    rubric = environment.rubric
    return Manifest(
        id="",
        env_id=resolved.env_id,
        model=settings.model.model,
        name=settings.env.name,
        kind=resolved.kind,
        created=timestamp(),
        command=options.command,
        settings={path: line["value"] for path, line in described.items()},
        origins={path: {"origin": line["origin"], "source": line["source"]} for path, line in described.items()},
        versions=versions_of(resolved),
        git=git_state(),
        seed=settings.env.shuffle_seed if settings.env.shuffle else None,
        metric_names=rubric.metric_names,
        state_columns=settings.env.state_columns,
        reward_range=rubric.reward_range,
        planned={"num_examples": plan.num_examples, "rollouts_per_example": plan.rollouts_per_example},
        parent=None if options.derive is None else options.derive.parent.id,
        derived={} if options.derive is None else options.derive.to_json(),
        suite=options.suite_id,
        budget=options.budget,
    )
