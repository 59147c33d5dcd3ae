"""Export of a run to Every Eval Ever, schema 0.3.0: an aggregate file and a samples file with one line per rollout, in
the folder layout of that project's datastore and validator. `every_eval_ever_records` creates the aggregate,
`every_eval_ever_records` the lines."""

from __future__ import annotations

import hashlib
import re
import uuid
from datetime import datetime
from pathlib import Path

from harness.plugins.exports.every_eval_ever_records import Identity, aggregate, row_of
from harness.plugins.exports.foreign import Source, json_bytes
from harness.store.export_formats import Exported
from harness.store.export_plain import one_line, unbroken
from harness.store.rundir import RunDir

_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", "data", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
)
"""Folder names that are not allowed in the datastore: those reserved by Windows, and the datastore's root."""

_DEVELOPERS = {"gemini": "google", "mistral": "mistralai", "xai": "xai", "cohere": "CohereLabs"}
"""Providers that serve their own models, and their names in the datastore where these differ from ours."""

_OWN_MODELS = frozenset({"openai", "anthropic", "deepseek", "ai21", *_DEVELOPERS})


def write(run: RunDir, target: Path) -> Exported:
    """Write `data/<environment>/<developer>/<model>/<uuid>.json` and `…_samples.jsonl` below a folder.

    The uuid is derived from the run's id, so every export of the run has the same one.

    Args:
        run: The run.
        target: The folder; created if missing.

    Raises:
        StoreError: the run cannot be read.
        OSError: a file cannot be written.
    """
    source = Source.read(run)
    identity = _identity(source)
    path, samples = target / f"{identity.stem}.json", target / f"{identity.stem}_samples.jsonl"
    samples.parent.mkdir(parents=True, exist_ok=True)
    digest, rows = hashlib.sha256(), 0
    with samples.open("xb") as file:
        for outcome in source.outcomes():
            line = one_line(json_bytes(row_of(outcome, identity, source.summary.pass_threshold)))
            digest.update(line)
            file.write(line)
            rows += 1
    document = aggregate(source, identity)
    if rows:
        document["detailed_evaluation_results"] = {
            "format": "jsonl", "file_path": samples.relative_to(target).as_posix(), "hash_algorithm": "sha256",
            "checksum": digest.hexdigest(), "total_rows": rows,
        }  # fmt: skip
    else:
        samples.unlink()
    path.write_bytes(one_line(json_bytes(document)))
    return Exported((*([samples] if rows else []), path), rows, _notes(source, identity))


def _notes(source: Source, identity: Identity) -> tuple[str, ...]:
    notes = [f'{identity.stem}.json: fill in "source_organization_name" and "evaluator_relationship"']
    if identity.developer == "unknown":
        notes.append(
            f"the developer of {source.manifest.model} is not known: the folder and the id contain `unknown` instead"
        )
    if unscored := sum(source.summary.unscored.values()):
        notes.append(
            f"{unscored} rollouts have no score, which the format requires: they have an `error` and the score 0, and "
            "the aggregate numbers exclude them"
        )
    if source.summary.reward.estimate.mean is None:
        notes.append("no rollout has a score, so there is no aggregate result")
    return tuple(notes)


def _identity(source: Source) -> Identity:
    manifest = source.manifest
    developer, model = _split(source)
    task = _component(manifest.env_id)
    model_id = f"{developer}/{model}"
    try:
        created = repr(datetime.fromisoformat(manifest.created).timestamp())
    except ValueError:
        created = "0"
    file_id = uuid.UUID(bytes=hashlib.sha256(manifest.id.encode()).digest()[:16], version=4)
    stem = f"data/{task}/{developer}/{_short(model.replace('/', '_'), 200)}/{file_id}"
    return Identity(f"{task}/{model_id}/{manifest.id}", model_id, developer, task, created, stem)


def _split(source: Source) -> tuple[str, str]:
    """Split a model's name into developer and model. If the name has no developer, the developer is the provider,
    provided that it serves its own models."""
    parts = [_component(part) for part in source.manifest.model.split("/") if part]
    if len(parts) > 1:
        return parts[0], "/".join(parts[1:])
    provider = source.provider
    own = _DEVELOPERS.get(provider or "", provider) if provider in _OWN_MODELS else None
    return own or "unknown", parts[0] if parts else "unknown"


def _component(text: str) -> str:
    """Convert a string to a folder name that is valid on any system."""
    name = _short(re.sub(r'[<>:"/\\|?*\x00-\x1f]', "_", unbroken(text)).rstrip(". ").strip(), 100) or "_"
    return f"_{name}" if name.split(".", 1)[0].lower() in _RESERVED or name.startswith(".") else name


def _short(name: str, limit: int) -> str:
    """Shorten a name to at most `limit` bytes; a shortened one ends in eight characters of its sha256."""
    data = name.encode()
    if len(data) <= limit:
        return name
    return f"{data[: limit - 9].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:8]}"
