"""The JSON document that `bench eval -o FILE` writes. The documented keys have their documented names, nesting and
order; additional keys follow them. Credentials are removed from URLs, and known secrets from all text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit, urlunsplit

import orjson

from harness.agents.results import EvalEvalSummary, EvalModelSummary, EvalResult, EvalRunResult
from harness.core.errors import UsageError
from harness.core.redact import hidden, redactor
from harness.core.types import JsonDict
from harness.stats import paired, summary
from harness.stats.summary import number
from harness.store.atomic import atomic_write, make_folder, translated
from harness.store.manifest import without_secrets

DOCUMENT_VERSION = 1
"""Version of the document. It is increased when the meaning of a key changes, but not for additional keys."""


_METHODS: JsonDict = {
    "mean": "mean over all runs; a failed run and a missing score count 0.0 and do not pass",
    "std": "population standard deviation over the same runs (ddof 0)",
    "pass_at_k": "1 - C(n-c,k)/C(n,k) per row (Chen et al. 2021, arXiv 2107.03374), then the mean over rows",
    "scored": "scored runs alone: mean of row means, sample standard deviation (ddof 1), 95 % interval by rows",
    **{name: summary.METHODS[name] for name in ("t", "wilson", "adjusted_t")},
}
"""Descriptions of the methods behind the statistics of a document."""


def document_meta(values: Mapping[str, object], models: Sequence[JsonDict]) -> JsonDict:
    """Build the value of the key `meta` in the JSON document of an evaluation, without secrets. Values that are None
    are omitted.

    Args:
        values: Arguments and origin of the evaluation.
        models: Endpoint and request settings of each model. Credentials are removed from `base_url`.
    """
    meta: JsonDict = {
        "document_version": DOCUMENT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **_known(values),
        "models": [_known(model) for model in models],
    }
    for model in meta["models"]:
        if "base_url" in model:
            model["base_url"] = without_credentials(model["base_url"])
    return cast(JsonDict, without_secrets(hidden(meta)))


def eval_document(result: EvalResult, meta: JsonDict | None = None) -> JsonDict:
    """Build the complete JSON document of an agent evaluation.

    Args:
        result: The result of the evaluation.
        meta: The value of the key `meta`, from `document_meta`; None for a document without this key.
    """
    baseline = result.model_summaries is not None
    config: JsonDict = {
        "model": result.models[0].model,
        "n_runs": result.n_runs,
        "pass_threshold": result.pass_threshold,
        "eval_fns": list(result.eval_summaries),
    }
    if baseline:
        config["baseline_model"] = result.models[1].model
    document: JsonDict = {
        "config": config,
        "summary": _summary(result),
        "rows": [
            {"row_index": row.row_index, "runs": [_run(run, tagged=baseline) for run in row.runs]}
            for row in result.rows
        ],
    }
    if result.model_summaries is not None:
        document["model_summaries"] = [_model(model) for model in result.model_summaries]
    if meta is not None:
        document["meta"] = meta
    return document


def check_output(path: Path) -> None:
    """Check that the document of an evaluation can be written to a path, before any request is sent.

    Raises:
        UsageError: the path is a folder, or one of its parents is a file.
    """
    if path.is_dir():
        raise UsageError(f"--output {path} is a folder; give a file, such as {path / 'results.json'}")
    above = next((parent for parent in path.parents if parent.exists()), None)
    if above is not None and not above.is_dir():
        raise UsageError(f"--output {path} is not usable: {above} is a file, not a folder; choose another path")


def write_document(path: Path, document: JsonDict, *, private: bool = False) -> None:
    """Write a document as indented JSON, and atomically replace an older file. Missing parent folders are created.

    Args:
        path: The file.
        document: The content.
        private: Make the file and the created folders readable by their owner only.

    Raises:
        StoreError: the file cannot be written; an older file is unchanged.
    """
    data = indented_json(document)
    with translated("write", path):
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # /dev/stdout or a pipe cannot be replaced
            return
        make_folder(path.resolve().parent, private=private)
    atomic_write(path.resolve(), data, private=private)


def indented_json(document: object) -> bytes:
    """Serialize a document as indented JSON.

    Raises:
        TypeError: the document contains a value that is not JSON.
        ValueError: the document contains NaN or infinity together with an integer beyond 64 bits or a lone surrogate.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # unpaired surrogates in a text, or integers beyond 64 bits
        return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def without_credentials(url: str) -> str:
    """Remove user, password, query and fragment from an endpoint's address."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _summary(result: EvalResult) -> JsonDict:
    failures: Counter[str] = Counter()
    for model in result.models:
        failures.update(model.failures)
    values: JsonDict = {
        "total_rows": result.total_rows,
        "total_runs": result.total_runs,
        "eval_fns": _eval_fns(result.eval_summaries),
        "total_tokens": result.total_tokens,
        "total_duration_ms": round(result.total_duration_ms),
        "stopped_early": result.stopped_early,
        "stop_reason": None if result.stop_reason is None else redactor.text(result.stop_reason),
        "interrupted": result.interrupted,
        "resumed_runs": result.resumed_runs,
        "failed_runs": result.failed_runs,
        "failures": dict(failures),
        "score_errors": result.score_errors,
        "unreported_replies": sum(model.unreported for model in result.models),
    }
    if result.paired:
        values["paired"] = {
            name: {"counted": pair.counted.to_json(), "scored": pair.scored.to_json(), "zeros": pair.zeros}
            for name, pair in result.paired.items()
        }
    values["methods"] = methods = _METHODS.copy()
    if result.paired:
        methods["paired"] = {
            "sides": "primary minus baseline",
            "counted": "a failed run and a missing score count 0.0; rows that both models have run",
            "scored": "scored runs alone; rows that both models have a score for",
            **paired.METHODS,
        }
    return values


def _eval_fns(summaries: Mapping[str, EvalEvalSummary]) -> JsonDict:
    return {name: _eval_fn(one) for name, one in summaries.items()}


def _eval_fn(one: EvalEvalSummary) -> JsonDict:
    rates = one.scored_pass_at_k
    scored = one.scored.to_json()
    if rates:
        scored["pass_at_k"] = {str(k): rate.value for k, rate in rates.items()}
        scored["pass_excluded"] = {str(k): rate.excluded for k, rate in rates.items()}
    return {
        "mean": number(one.mean),
        "std": number(one.std),
        "min": number(one.min),
        "max": number(one.max),
        **{f"pass_at_{k}": number(value) for k, value in one.pass_at_k.items()},
        "scored": scored,
        "score_errors": one.score_errors,
        "failed_runs": one.failed_runs,
    }


def _run(run: EvalRunResult, *, tagged: bool) -> JsonDict:
    values: JsonDict = {
        "run_index": run.run_index,
        "success": run.success,
        "scores": run.scores,
        "duration_ms": round(run.duration_ms),
        "tokens": run.tokens,
    }
    if tagged:
        values["model_tag"] = run.model_tag
    if not run.success:
        values["error"] = redactor.text(run.error or "")
        values["reason"] = run.reason
    if run.finish_reason is not None:
        values["finish_reason"] = run.finish_reason
    if run.score_errors:
        values["score_errors"] = {name: redactor.text(why) for name, why in run.score_errors.items()}
    if run.unreported:
        values["unreported_replies"] = run.unreported
    return values


def _model(model: EvalModelSummary) -> JsonDict:
    return {
        "model": model.model,
        "model_tag": model.model_tag,
        "total_runs": model.total_runs,
        "total_tokens": model.total_tokens,
        "total_duration_ms": round(model.total_duration_ms),
        "eval_fns": _eval_fns(model.eval_summaries),
        "wall_ms": round(model.wall_ms),
        "failed_runs": model.failed_runs,
        "failures": model.failures,
        "score_errors": model.score_errors,
        "unreported_replies": model.unreported,
    }


def _known(values: Mapping[str, object]) -> JsonDict:
    return {name: value for name, value in values.items() if value is not None}
