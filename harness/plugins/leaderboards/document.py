"""Creation of the YAML document of a run's result, which is stored under `.eval_results/` in a model repository, and
from which the Hub builds its leaderboards (`docs/hub/eval-results`). Checks that the run can be published, and computes
the document's value and notes. Sends nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from harness.core.errors import StoreError, UsageError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.settings.endpoint_selection import is_reference
from harness.settings.wording import suggestion
from harness.store.hub_names import check_repo
from harness.store.manifest import Manifest, without_secrets
from harness.store.values import count, ends, number, table

FOLDER = ".eval_results"

TASKS_FILE = "eval.yaml"
"""Name of the file in a benchmark's dataset that lists the benchmark's tasks."""

TASKS_BYTES = 1 << 20
"""Size limit of `eval.yaml`."""

SOURCE_NAME = "Rollouts by bench"

_REVISION = re.compile(r"[0-9a-f]{40}")
_SETTINGS = 300
"""Maximum number of characters of the sampling arguments, and of the environment's arguments, in the notes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The user's statement that a run is a result of a model on a benchmark."""

    model: str
    """The model repository, `namespace/name`."""
    benchmark: str
    """The benchmark's dataset, `namespace/name`."""
    task: str | None = None
    """Task of the benchmark; None if it has only one."""
    revision: str | None = None
    """Commit of the benchmark's dataset."""
    fraction: bool = False
    """Whether to report the mean as a fraction, not in percent."""
    subset: bool = False
    """Whether to accept a run of a part of the benchmark."""
    notes: str = ""
    """Text that the user adds at the beginning of the result's notes."""


def check_claim(claim: Claim) -> None:
    """Validate the names of a claim.

    Raises:
        UsageError: a name cannot exist on the Hub.
    """
    for option, name in (("eval_results", claim.model), ("benchmark", claim.benchmark)):
        if "/" not in check_repo(name):
            raise UsageError(
                "give NAMESPACE/NAME, as in the address of the repository on the Hub", setting=option, given=name
            )
    if claim.task is not None and not claim.task.strip():
        raise UsageError("name a task of the benchmark, or omit the option if it has only one task", setting="task")
    if claim.revision is not None and not _REVISION.fullmatch(claim.revision):
        raise UsageError(
            "give the full commit hash of the benchmark, 40 hex digits", setting="revision", given=claim.revision
        )


def check_run(manifest: Manifest, summary: JsonDict | None, claim: Claim) -> None:
    """Check that a run can be published as a result of a model on a benchmark.

    Raises:
        UsageError: the run is not finished, has no score, is of a reference model, or of a part of the benchmark.
    """
    names = [manifest.model, *_names(table(manifest.identity.get("model")).get("names"))]
    if made_up := [name for name in names if is_reference(name)]:
        raise UsageError(f"{manifest.id}: {made_up[0]} is a reference model; its scores cannot be published")
    if judges := [name for name in _judges(manifest) if is_reference(name)]:
        raise UsageError(f"{manifest.id}: its judge {judges[0]} is a reference model; its scores cannot be published")
    if manifest.status != "done" or summary is None or summary.get("not_run"):
        status = "not finished" if manifest.status == "done" else manifest.status
        raise UsageError(
            f"{manifest.id} is {status}, so it cannot be published as a result",
            remedy="resume it first: {resume_command} {run}",
            run=manifest.id,
        )
    if number(table(summary.get("reward")).get("mean")) is None:
        raise UsageError(f"{manifest.id} has no score, so it cannot be published as a result")
    if _is_part(manifest, summary) and not claim.subset:
        raise UsageError(
            f"{manifest.id} has {_examples(manifest, summary)}, which may not be the whole benchmark",
            remedy="run the whole benchmark with {num_examples} -1, or add {subset} to publish a partial result",
        )


def tasks_in(text: str, benchmark: str) -> tuple[str, ...]:
    """Parse the ids of a benchmark's tasks from its `eval.yaml`.

    Raises:
        StoreError: the file cannot be parsed, or lists no tasks.
    """
    import yaml

    wrong = f"{TASKS_FILE} of {benchmark} cannot be read"
    try:
        document = cast(object, yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise StoreError(f"{wrong}: {' '.join(str(error).split())[:200]}") from error
    listed = table(document).get("tasks")
    tasks = [table(task).get("id") for task in cast("list[object]", listed)] if isinstance(listed, list) else []
    if not tasks or not all(isinstance(task, str) and task and task.isprintable() for task in tasks):
        raise StoreError(f"{wrong}: it must have a list `tasks` of items with an `id`")
    return tuple(dict.fromkeys(cast("list[str]", tasks)))


def task_of(claim: Claim, tasks: Sequence[str]) -> str:
    """Return the task that the claim names, or the benchmark's only task.

    Raises:
        UsageError: the benchmark does not have the task, or has several and the claim names none.
    """
    if claim.task is None:
        if len(tasks) > 1:
            raise UsageError(
                f"{claim.benchmark} has {len(tasks)} tasks",
                remedy="choose one with {task}: {tasks}",
                tasks=", ".join(tasks[:10]) + (f", and {len(tasks) - 10} more" if len(tasks) > 10 else ""),
            )
        return tasks[0]
    if claim.task not in tasks:
        raise UsageError(
            f"not a task of {claim.benchmark}; {suggestion(claim.task, tasks)}", setting="task", given=claim.task
        )
    return claim.task


def path_of(claim: Claim, task: str, run_id: str) -> str:
    """Return the document's path in the model repository. It contains the run's id, so no other result is replaced."""
    name, of_task = _slug(claim.benchmark.rpartition("/")[2]), _slug(task)
    parts = [name, *([of_task] if of_task not in (name, "default") else []), run_id]
    return f"{FOLDER}/{'_'.join(parts)}.yaml"


def title_of(claim: Claim, task: str, run_id: str) -> str:
    """Return the title of the pull request. It contains the run's id, by which the pull request is found again."""
    of_task = "" if _slug(task) == _slug(claim.benchmark.rpartition("/")[2]) else f" ({task})"
    return f"Add a result of {claim.benchmark}{of_task}: bench run {run_id}"


def document_of(manifest: Manifest, summary: JsonDict, claim: Claim, task: str, url: str, user: str) -> str:
    """Create the YAML document of a result.

    Args:
        manifest: Manifest of the run.
        summary: Its `summary.json`.
        claim: The model and the benchmark.
        task: Task of the benchmark.
        url: Address of the dataset with the run's rollouts.
        user: User or organisation that owns the dataset.
    """
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entry = EvalResultEntry(
        dataset_id=claim.benchmark,
        task_id=task,
        value=value_of(manifest, summary, claim),
        dataset_revision=claim.revision,
        date=manifest.created[:10] or None,
        source_url=url,
        source_name=SOURCE_NAME,
        source_user=user,
        notes=notes_of(manifest, summary, claim),
    )
    return yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True, width=1000)


def value_of(manifest: Manifest, summary: JsonDict, claim: Claim) -> float:
    """Return the mean reward, in percent if all rewards are between 0 and 1 and no fraction is requested."""
    mean = number(table(summary.get("reward")).get("mean"))
    assert mean is not None, "see check_run"
    return round(100 * mean, 2) if _in_percent(manifest, summary, claim) else round(mean, 4)


def notes_of(manifest: Manifest, summary: JsonDict, claim: Claim) -> str:
    """Return one line of text with the conditions of a result: examples, interval, missing scores, sampling,
    versions."""
    percent = _in_percent(manifest, summary, claim)
    reward, early = table(summary.get("reward")), table(summary.get("until_ci"))
    each = manifest.planned.get("rollouts_per_example")
    rollouts = f", {each} rollout{'' if each == 1 else 's'} each" if isinstance(each, int) else ""
    interval = _span(reward.get("ci95"), percent=percent)
    known = f"the mean was known to ±{early.get('half_width')} (--until-ci)"
    known = f"a comparison with {manifest.gate.get('model')} was decided" if manifest.gate else known
    stopped = f"stopped once {known}, with an interval that is valid "
    sampling = table(table(manifest.identity.get("model")).get("sampling_args"))
    parts = [
        " ".join(claim.notes.split()),
        f"mean reward{' in percent' if percent else ''} over {_examples(manifest, summary)}{rollouts}",
        f"95 % interval {interval} ({reward.get('method')})" if interval else "no interval",
        f"{stopped}at any stopping time" if early else "",
        _coverage(summary, percent=percent),
        f"sampling: {_arguments(sampling)}" if sampling else "sampling: the endpoint's defaults",
        _made_with(manifest),
    ]
    line = "; ".join(part for part in parts if part)
    return redactor.text("".join(letter if letter.isprintable() else " " for letter in line))


def _in_percent(manifest: Manifest, summary: JsonDict, claim: Claim) -> bool:
    reward = table(summary.get("reward"))
    seen = [number(reward.get(key)) for key in ("min", "max")]
    ends = [*manifest.reward_range, *(value for value in seen if value is not None)]
    return not claim.fraction and all(0 <= end <= 1 for end in ends)


def _is_part(manifest: Manifest, summary: JsonDict) -> bool:
    """Return whether the run may cover only a part of the benchmark, because examples were limited, rows were skipped
    or the run was derived from another. A run that ended early counts with all its planned examples."""
    asked = manifest.settings.get("env.num_examples")
    planned = table(summary.get("until_ci")).get("of_examples") or manifest.planned.get("num_examples")
    cut = isinstance(asked, int) and asked > 0 and isinstance(planned, int) and planned >= asked
    return cut or bool(manifest.settings.get("env.example_ids")) or bool(manifest.derived) or _skipped(manifest) > 0


def _skipped(manifest: Manifest) -> int:
    """Return the number of rows that an agent evaluation skipped at the beginning of its file."""
    return count(table(table(manifest.identity.get("env")).get("env_args")).get("offset"))


def _examples(manifest: Manifest, summary: JsonDict) -> str:
    early = table(summary.get("until_ci"))
    planned = count(manifest.planned.get("num_examples")) or count(summary.get("num_examples"))
    part = _is_part(manifest, summary)
    if early:
        among = "" if part else "all "
        seen, of = count(early.get("examples")), count(early.get("of_examples"))
        return f"{seen:,} of {among}{of:,} examples, in random order"
    if not part:
        return f"all {planned:,} examples"
    if manifest.derived:
        return f"{planned:,} examples recorded by run {manifest.parent}"
    if manifest.settings.get("env.example_ids"):
        return f"{planned:,} examples chosen by their ids"
    if manifest.settings.get("env.shuffle"):
        return f"{planned:,} examples drawn at random (seed {manifest.settings.get('env.shuffle_seed')})"
    skipped = _skipped(manifest)
    return f"{planned:,} examples after the first {skipped:,}" if skipped else f"the first {planned:,} examples"


def _coverage(summary: JsonDict, *, percent: bool) -> str:
    unscored = table(summary.get("unscored"))
    if not unscored:
        return ""
    total = max(count(summary.get("planned")), count(summary.get("num_rollouts")))
    reasons = ", ".join(f"{reason} {times}" for reason, times in unscored.items())
    bounds = _span(summary.get("bounds"), percent=percent)
    worth = f"; {bounds} if all of them had the lowest, or the highest, reward" if bounds else ""
    return f"{count(summary.get('scored')):,} of {total:,} rollouts have a score (unscored: {reasons}{worth})"


def _made_with(manifest: Manifest) -> str:
    env = table(manifest.identity.get("env"))
    given = table(env.get("env_args"))
    made = str(env.get("distribution") or manifest.env_id)
    parts = [f"{made} with {_arguments(given)}" if given else made]
    if version := manifest.versions.get("bench-harness"):
        parts.append(f"bench-harness {version}")
    if judges := _judges(manifest):
        parts.append(f"judged by {', '.join(dict.fromkeys(judges))}")
    if manifest.derived:
        only = f" (only {manifest.derived['only']})" if manifest.derived.get("only") else ""
        parts.append(f"{manifest.derived.get('how')} of run {manifest.parent}{only}")
    return ", ".join(parts)


def _arguments(given: JsonDict) -> str:
    shown = cast(JsonDict, without_secrets(given))
    words = ", ".join(f"{name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in shown.items())
    return words if len(words) <= _SETTINGS else f"{words[: _SETTINGS - 1]}…"


def _judges(manifest: Manifest) -> list[str]:
    judges = table(manifest.identity.get("judges")).values()
    return [name for judge in judges for name in _names(table(judge).get("model"))]


def _names(value: object) -> list[str]:
    return [str(name) for name in cast("list[object]", value)] if isinstance(value, list) else []


def _span(value: object, *, percent: bool) -> str:
    known = ends(value)
    if known is None:
        return ""
    return " to ".join(f"{100 * end:.2f}" if percent else f"{end:.4g}" for end in known)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_.") or "task"
