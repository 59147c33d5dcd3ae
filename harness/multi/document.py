"""The result object of a multi-model evaluation, with its keys in order and the content of `meta`. Computes no
statistics."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from harness.agents.result_document import without_credentials
from harness.core.redact import hidden
from harness.core.types import JsonDict
from harness.multi.models import Model
from harness.multi.results import EvaluationResult, ModelResult, PersistStatus, Totals
from harness.multi.summary import compare, methods
from harness.settings.resolved_run import ResolvedRun
from harness.store.manifest import without_secrets

DOCUMENT_VERSION = 1
"""Format version of the result. New keys do not change it; it increases when older readers would misread a result."""

RUN, REPLAY = "mmeval", "mmeval_replay"
"""Prefixes of the ids of evaluations and of replays."""

_DIGITS = string.digits + string.ascii_lowercase


@dataclass(frozen=True, slots=True)
class Started:
    """The id, size and start time of an evaluation, known before its first request."""

    run_id: str
    tasks: int
    models: int
    at: int = field(default_factory=lambda: milliseconds())
    """Start time in milliseconds since 1970."""

    @property
    def totals(self) -> Totals:
        """Number of requested tasks, models and runs of the evaluation."""
        return Totals(tasks=self.tasks, models=self.models, totalRuns=self.tasks * self.models)


def new_run_id(kind: str = RUN) -> str:
    """Create an evaluation id such as `mmeval_mb4x0k2c_8fh2k1qz`: the time in milliseconds and eight random characters,
    in base 36."""
    moment, digits = milliseconds(), ""
    while moment:
        moment, digit = divmod(moment, 36)
        digits = _DIGITS[digit] + digits
    return f"{kind}_{digits}_" + "".join(secrets.choice(_DIGITS) for _ in range(8))


def milliseconds() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def result_document(
    started: Started, models: Sequence[ModelResult], meta: JsonDict, *, finished_at: int | None = None
) -> EvaluationResult:
    """Build the complete result object of an evaluation. Its field `persist` is "disabled" until a record is stored.

    Args:
        started: The evaluation.
        models: The result of each model, in the order in which they were given.
        meta: See `meta_of`.
        finished_at: End time in milliseconds since 1970; the default is the current time.
    """
    finished = milliseconds() if finished_at is None else finished_at
    return EvaluationResult(
        runId=started.run_id,
        startedAt=started.at,
        finishedAt=finished,
        durationMs=finished - started.at,
        totals=started.totals,
        summary=[model["summary"] for model in models],
        models=list(models),
        persist=PersistStatus(enabled=False),
        meta=meta,
    )


def meta_of(
    models: Sequence[Model], runs: Sequence[ResolvedRun], results: Sequence[ModelResult], extra: JsonDict
) -> JsonDict:
    """Build the value of `meta`: request settings of each model, and the comparison of the models; without secrets.

    Args:
        models: The models as the caller gave them.
        runs: Their settings, in the same order.
        results: Their results, in the same order.
        extra: Further values: `versions`, `command`, `scoreOutput`, ….
    """
    pairs = compare(results)
    return {
        "documentVersion": DOCUMENT_VERSION,
        **cast(JsonDict, without_secrets(hidden({name: value for name, value in extra.items() if value is not None}))),
        "models": [_asked(model, run) for model, run in zip(models, runs, strict=True)],
        "paired": pairs,
        "methods": methods(has_pairs=bool(pairs)),
    }


def _asked(model: Model, run: ResolvedRun) -> JsonDict:
    url = run.endpoints[0].url
    asked: JsonDict = {
        "modelId": model.label,
        "name": run.settings.env.name,
        "model": run.settings.model.model,
        "provider": model.provider or None,
        "baseUrl": without_credentials(url) if url else None,
        "samplingArgs": dict(run.settings.model.sampling_args),
    }
    return cast(JsonDict, without_secrets(hidden(asked)))
