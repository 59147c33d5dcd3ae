"""The result object of an evaluation, put together from what its models came to. Owns the order of its keys and what
`meta` says; computes nothing."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit, urlunsplit

from harness.core.redact import hidden
from harness.core.types import JsonDict
from harness.multi.models import Model
from harness.multi.results import EvaluationResult, ModelResult, PersistStatus, Totals
from harness.multi.summary import compare, methods
from harness.settings.runs import ResolvedRun
from harness.store.manifest import without_secrets

DOCUMENT_VERSION = 1
"""Raised when a reader of the former version would misread a result; new keys alone do not raise it."""

RUN, REPLAY = "mmeval", "mmeval_replay"
"""How ids of evaluations begin."""

_DIGITS = string.digits + string.ascii_lowercase


@dataclass(frozen=True, slots=True)
class Started:
    """One evaluation, as far as it is known before its first request."""

    run_id: str
    tasks: int
    models: int
    at: int = field(default_factory=lambda: milliseconds())
    """When it began."""

    @property
    def totals(self) -> Totals:
        """How much is asked for."""
        return Totals(tasks=self.tasks, models=self.models, totalRuns=self.tasks * self.models)


def new_run_id(kind: str = RUN) -> str:
    """An id such as `mmeval_mb4x0k2c_8fh2k1qz`: the time in milliseconds and eight characters by chance, in base 36."""
    moment, digits = milliseconds(), ""
    while moment:
        moment, digit = divmod(moment, 36)
        digits = _DIGITS[digit] + digits
    return f"{kind}_{digits}_" + "".join(secrets.choice(_DIGITS) for _ in range(8))


def milliseconds() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def result_document(
    started: Started, models: Sequence[ModelResult], meta: JsonDict, *, finished_at: int | None = None
) -> EvaluationResult:
    """The whole result; `persist` says that nothing is stored, until something is.

    Args:
        started: What was asked for.
        models: What each model came to, in the order in which they were given.
        meta: See `meta_of`.
        finished_at: Milliseconds; now by default.
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
    """What is ours of a result: how each model was asked, and the models compared; without secrets.

    Args:
        models: As they were given.
        runs: Their settings, in the same order.
        results: What they came to, in the same order.
        extra: What else is known: `versions`, `command`, `scoreOutput`, ….
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


def without_credentials(url: str) -> str:
    """An endpoint's address without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
