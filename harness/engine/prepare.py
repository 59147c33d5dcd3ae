"""Prepare runs before the first request: load each environment, plan the rollouts, and create or find the run folder.
Decides whether a run may be resumed; calls no model and starts no tasks. Runs in the main thread before the event loop,
because constructors of environments may install signal handlers. If an environment fails to load, only its run fails;
an invalid setting stops all runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.core.errors import ConfigError, HarnessError, ResumeRefused, UsageError
from harness.core.messages import Message
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.clusters import declared_clusters
from harness.engine.derived import Derivation, plan_from, take_over
from harness.engine.judges import JudgeBinding, identity_with, judges_of
from harness.engine.load_environments import Loader
from harness.engine.paired_gate import with_gate
from harness.engine.plan import PlannedRollouts, identity_of
from harness.engine.privacy import stay_private
from harness.engine.progress import RunProgress
from harness.engine.provenance import IN_PLACE, bench_version, git_state, versions_of
from harness.engine.remaining_work import check_growth
from harness.envs.environment import Environment
from harness.models.wire import check_settings_of_sampling
from harness.reference.policies import parse_model
from harness.settings.json_schema import suite_schema
from harness.settings.resolver import ResolvedRun
from harness.stats.paired_target import rule_of
from harness.stats.summary import Summary
from harness.stats.target import finite_limits
from harness.store.dataset import DatasetWriter
from harness.store.find_runs import find_run
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.notes import copy_notes
from harness.store.resume import differences, find_resumable, resume_obstacle
from harness.store.rows import RowShape
from harness.store.rundir import RunDir, RunLock, folder_name, timestamp
from harness.store.score_table import aim_of
from harness.store.scratch import Scratch, remove_stale


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of an invocation that are not settings of its runs, such as whether to resume."""

    command: str = ""
    """The command line as it was typed."""
    suite_id: str | None = None
    resume: bool = False
    """Resume the newest run with the same settings, if one exists."""
    resume_from: str | None = None
    """The run to resume: its folder, its id or the beginning of its id."""
    retry_failed: bool = False
    """Generate failed rollouts again, and score unscored rollouts again."""
    derive: Derivation | None = None
    """Derive the run from another run's journal; None for an ordinary run."""
    fail_fast: bool = False
    """Stop a run at its first rollout without a score; the other runs continue."""
    budget: JsonDict = field(default_factory=dict[str, object])
    """The invocation's budget, as stored in the manifest; empty without limits."""
    is_ours: bool = True
    """Whether to mark the settings as written on this machine, so that they are trusted when the run is resumed."""

    @property
    def asks_model(self) -> bool:
        """Whether a model is called; false if recorded replies are used."""
        return self.derive is None or self.derive.asks_model


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Settings, environment, planned rollouts and judges of a run. Does not change after the first request."""

    resolved: ResolvedRun
    environment: Environment
    rollouts: PlannedRollouts
    judges: tuple[JudgeBinding, ...]
    """The judge models of the run's rubric."""
    start: StartOptions
    resumes: RunDir | None = None
    """Folder of the run that is resumed; None for a new run."""

    @property
    def asks_model(self) -> bool:
        """Whether the run calls a model; false for a derived run that uses recorded replies or only scores rollouts."""
        return self.start.asks_model


@dataclass(eq=False, slots=True)
class LiveRun:
    """State of one prepared run, which only the engine changes."""

    plan: RunPlan
    progress: RunProgress
    manifest: Manifest
    folder: RunDir = field(init=False)
    """The run's folder; set when no run of the invocation was refused."""
    lock: RunLock | None = None
    recorded: Recorded | None = None
    """Index of the journal of a resumed run; None for a new run."""
    scratch: Scratch | None = None
    """Temporary folder of a run that is not saved; None for a saved run."""
    writer: DatasetWriter | None = None
    """Writer that updates the dataset during the run; None if the run is not saved."""
    summary: Summary | None = None
    """Summary of the run; None until the run has ended."""
    on_release: Callable[[], None] = lambda: None
    """Called before the lock is released, while no other process can write the run; may be called repeatedly."""

    @property
    def is_saved(self) -> bool:
        """Whether the run's files are kept on disk."""
        return self.scratch is None

    def release(self) -> None:
        """Release the lock of the run's folder; idempotent."""
        self.on_release()
        if self.lock is not None:
            self.lock.release()


@dataclass(slots=True)
class FailedRun:
    """A run that failed before its first request, with its error."""

    progress: RunProgress
    error: HarnessError


def progress_of(resolved: ResolvedRun) -> RunProgress:
    """Create the live counters of a run, all at 0."""
    settings = resolved.settings
    return RunProgress(settings.env.name, resolved.env_id, settings.model.model)


def prepare(
    runs: Sequence[ResolvedRun],
    progress: Sequence[RunProgress],
    start: StartOptions,
    loader: Loader | None = None,
    admit: Callable[[Sequence[LiveRun | FailedRun]], None] | None = None,
) -> list[LiveRun | FailedRun]:
    """Load, plan and open the runs of one invocation. Folders are created only when all runs have been accepted.

    Args:
        runs: Resolved settings of each run.
        progress: Counters of each run, in the same order.
        start: Start options of the invocation.
        loader: Loader of the environments; by default a new one.
        admit: Called when every run has been validated and before folders are created; may raise to refuse all runs.

    Returns:
        Each run, or, if it cannot start, the run with its error.

    Raises:
        UsageError: a setting is invalid, or a run cannot be resumed as requested.
        StoreError: a run folder cannot be created.
    """
    _learn_secrets(runs)
    remove_stale()
    loader = loader or Loader()
    made: list[LiveRun | FailedRun] = []
    try:
        loader.expect(runs)
        made += [_try(_load, each, counters, loader, start) for each, counters in zip(runs, progress, strict=True)]
        if start.resume_from is not None and len(made) > 1:
            words = Message(
                "{resume_from} {run} resumes one run, but this command starts {count} runs",
                run=start.resume_from,
                count=len(made),
            )
            raise UsageError(words, remedy="use {resume} to resume the earlier run of each")
        taken: set[Path] = set()
        made = [each if isinstance(each, FailedRun) else _try(_locate, each, each.progress, taken) for each in made]
        if admit is not None:
            admit(made)
        for each in made:
            if isinstance(each, LiveRun):
                _open(each)
    except BaseException:
        loader.give_up()
        for each in made:
            if isinstance(each, LiveRun):
                each.release()
        raise
    return made


def _try(step: Callable[..., LiveRun], subject: object, progress: RunProgress, *rest: object) -> LiveRun | FailedRun:
    """Execute one step of a run's preparation. If it raises an error that concerns only this run, the run fails."""
    try:
        return step(subject, progress, *rest)
    except HarnessError as error:
        if error.exit_code == UsageError.exit_code:
            raise  # stop the invocation before anything starts
        progress.state, progress.note = "failed", redactor.text(str(error))
        return FailedRun(progress, error)


def _learn_secrets(runs: Sequence[ResolvedRun]) -> None:
    """Register the runs' secrets for redaction before environment code, which could print them, runs."""
    redactor.add_named(os.environ)
    for run in runs:
        redactor.add_named(run.settings.env.env_args)
        redactor.add_named(run.settings.env.extra_env_kwargs)
        for endpoint in run.endpoints:
            redactor.add(os.environ.get(endpoint.key_var or "", ""))
            redactor.add_headers(endpoint.headers)
        redactor.add_headers(run.settings.model.extra_headers)


def _load(resolved: ResolvedRun, progress: RunProgress, loader: Loader, start: StartOptions) -> LiveRun:
    """Load the environment of a run, and create the run's plan and manifest."""
    resolved.require_secrets(asks_model=start.asks_model)
    env = resolved.settings.env
    loader.check_executor(resolved)
    environment = loader.load(resolved)
    _check(resolved, environment)
    identity = identity_of(resolved, environment)
    if start.derive is None:
        rollouts = PlannedRollouts(environment, resolved, identity)
    else:
        rollouts, environment = plan_from(start.derive, environment, identity)
        identity["derived"] = start.derive.identity()
    judges = judges_of(resolved, environment, os.environ)
    rollouts.check()
    plan = RunPlan(resolved, environment, rollouts, judges, start)
    key, progress.clusters = declared_clusters(
        resolved, environment, rollouts.examples(), is_derived=start.derive is not None
    )
    manifest = replace(_manifest(plan, identity_with(identity, judges)), cluster_key=key)
    if env.gate is not None and start.derive is None:
        resolved, manifest = with_gate(resolved, manifest, rollouts)
        plan = replace(plan, resolved=resolved)
    RowShape.of(manifest)  # refuse clashing column names before any request is paid
    progress.total = rollouts.total
    progress.limits = finite_limits(manifest.reward_range)
    aim = aim_of(manifest)
    progress.target = None if aim is None else rule_of(aim)
    return LiveRun(plan, progress, manifest)


def _check(resolved: ResolvedRun, environment: Environment) -> None:
    """Raise an error if the environment does not support the reference model, or if a sampling argument is invalid."""
    model = resolved.endpoints[0].model
    policy = parse_model(model).name if resolved.is_reference else None
    if policy == "judge":
        raise ConfigError(f"{model} can only be a judge, not the evaluated model; to use the judge, set judge_model")
    if policy in {"oracle", "noisy"} and not environment.has_reference:
        raise ConfigError(
            f"{resolved.env_id} has no reference policy, so {model} cannot be used with this environment",
            remedy="implement reference_reply in the environment, or use reference/null, reference/echo or a model at "
            "an endpoint ({api_base_url})",
        )
    check_settings_of_sampling({**environment.sampling_args, **resolved.settings.model.sampling_args})


def _locate(run: LiveRun, progress: RunProgress, taken: set[Path]) -> LiveRun:
    """Find the earlier run that a run resumes, if one is requested, and lock its folder."""
    if not run.plan.start.resume and run.plan.start.resume_from is None:
        return run
    if not run.plan.resolved.settings.save.save_results:
        raise UsageError(Message("{resume} needs the journal of a run, but {no_save} saves none"))
    folder = _earlier(run)
    if folder is None:
        return run
    if folder.path in taken:
        raise ResumeRefused(
            f"two runs called {run.manifest.name!r} would both resume {folder.path}",
            setting="resume",
            remedy="give each run its own `name`, or resume one at a time: {resume_command} RUN",
        )
    if folder.id == run.manifest.gate.get("baseline"):
        raise UsageError(Message("{gate} {path}: a run cannot be its own baseline", path=folder.path))
    taken.add(folder.path)
    run.lock = folder.lock()
    try:
        if folder.journal_path.exists():
            run.recorded = Recorded.load(folder.journal_path)
            check_growth(run.plan.rollouts, run.recorded, folder.read_manifest().planned)
        elif folder.has_data() or folder.read_summary() is not None:
            raise ResumeRefused(
                f"{folder.path} has results but no journal.jsonl, so the run cannot be resumed; restore this file "
                "from a copy, or start a new run"
            )
        resolved, run.manifest = stay_private(run.plan.resolved, run.manifest, folder)
    except BaseException:
        run.release()
        raise
    run.plan = replace(run.plan, resolved=resolved, resumes=folder)
    return run


def _open(run: LiveRun) -> None:
    """Create the folder of a new run or reuse the folder of a resumed run, and write settings and manifest into it."""
    plan, settings, folder = run.plan, run.plan.resolved.settings, run.plan.resumes
    run.scratch = None if settings.save.save_results else Scratch()
    if folder is None:
        output_dir = settings.save.output_dir if run.scratch is None else run.scratch.name
        private = settings.save.private
        folder = RunDir.create(output_dir, plan.resolved.env_id, settings.model.model, private=private)
        run.lock = folder.lock()
    else:
        run.manifest = _continued(run.manifest, folder.read_manifest())
        if settings.save.private:
            folder.close_to_others()  # restore modes lost in a copy, or make an open run private
    run.folder, run.manifest = folder, replace(run.manifest, id=folder.id)
    named = {judge.alias: judge.endpoints for judge in plan.judges if judge.alias is not None and not judge.spec.key}
    # A folder is a run once it has a manifest, so write the manifest after the settings that a resume reads.
    schema = ""
    if run.is_saved and plan.resumes is None:
        schema = folder.write_schema(f"suite-{bench_version()}.json", suite_schema)
    folder.write_config(schema + plan.resolved.to_toml(named), is_ours=plan.start.is_ours and run.is_saved)
    folder.write_manifest(run.manifest)
    derive = plan.start.derive
    if derive is not None and derive.how == "rescore" and not folder.journal_path.exists():
        take_over(derive, folder.journal_path)
        copy_notes(derive.parent, folder)
        run.recorded = Recorded.load(folder.journal_path)


def _continued(manifest: Manifest, earlier: Manifest) -> Manifest:
    """Return the manifest of a resumed run. If the settings come from the run's own `config.toml`, keep the origins,
    suite and command of the first manifest, since that file only repeats the first command's settings."""
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


def _earlier(run: LiveRun) -> RunDir | None:
    """Return the folder of the run to resume: the requested one, which must have the same identity, or else the newest
    run with the same identity. None if no such run exists."""
    manifest, output_dir = run.manifest, run.plan.resolved.settings.save.output_dir
    if run.plan.start.resume_from is not None:
        folder = RunDir(find_run(output_dir, run.plan.start.resume_from))
        changed = differences(folder.read_manifest().identity, manifest.identity)
        if changed:
            raise ResumeRefused(
                Message("{path} cannot be resumed: {changed}.", path=folder.path, changed=changed),
                remedy="Start a new run, or undo the change",
            )
        return folder
    parent = Path(output_dir) / "evals" / folder_name(manifest.env_id, manifest.model)
    found = find_resumable(parent, manifest)
    obstacle = resume_obstacle(parent, manifest) if found is None else None
    if obstacle is not None:
        raise ResumeRefused(obstacle, remedy="Start a new run without {resume}, or undo the change")
    return None if found is None else RunDir(found)


def _manifest(plan: RunPlan, identity: JsonDict) -> Manifest:
    resolved, start, rollouts = plan.resolved, plan.start, plan.rollouts
    settings = resolved.settings
    described = resolved.described()
    rubric = plan.environment.rubric
    return Manifest(
        id="",
        env_id=resolved.env_id,
        model=settings.model.model,
        name=settings.env.name,
        kind=resolved.kind,
        created=timestamp(),
        command=start.command,
        settings={path: line["value"] for path, line in described.items()},
        origins={path: {"origin": line["origin"], "source": line["source"]} for path, line in described.items()},
        versions=versions_of(resolved),
        git=git_state(),
        identity=identity,
        seed=settings.env.shuffle_seed if settings.env.shuffle else None,
        metric_names=rubric.metric_names,
        state_columns=settings.env.state_columns,
        reward_range=rubric.reward_range,
        planned={"num_examples": rollouts.num_examples, "rollouts_per_example": rollouts.rollouts_per_example},
        parent=None if start.derive is None else start.derive.parent.id,
        derived={} if start.derive is None else start.derive.to_json(),
        gate={} if start.derive is None else start.derive.parent.read_manifest().gate,
        suite=start.suite_id,
        budget=start.budget,
    )
