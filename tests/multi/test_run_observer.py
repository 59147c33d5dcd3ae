"""The way from the engine's runs to results, as a command goes it: models resolved over a file of tasks, environments
loaded by name, progress reported as it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from harness.core.types import JsonDict
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.prepare import StartOptions
from harness.multi.document import Started, meta_of, result_document
from harness.multi.events import Events
from harness.multi.models import Model, read_models
from harness.multi.results import ModelResult
from harness.multi.run_observer import EvaluationWatch
from harness.multi.settings import resolve_models
from harness.settings.endpoints import Registry
from harness.settings.resolver import Resolution

TASKS: list[JsonDict] = [
    {"id": "a", "prompt": "Say yes", "expected": "yes"},
    {"id": "b", "prompt": "no", "expected": "x"},
]


def made(models: Sequence[Model], found: Resolution, events: Events) -> list[ModelResult]:
    async def main() -> list[ModelResult]:
        watch = EvaluationWatch(models, events)
        async with Evaluation(found.runs, start=StartOptions("bench multi", fail_fast=True)).hosted() as runs:
            watch.attach(runs)
            listener = EvaluationListener(finished=watch.finished, recorded=watch.recorded)
            await Evaluation([], at_once=1, listener=listener).play(runs)
            return watch.results(runs)

    return asyncio.run(main())


def test_a_commands_way(workplace: Path) -> None:
    (workplace / "tasks.json").write_text(json.dumps(TASKS))
    flags = {"env_args": {"tasks": "tasks.json"}, "output_dir": "outputs", "sampling_args": ["top_p=0.5"]}
    models = read_models(["reference/echo", {"id": "best", "modelId": "reference/oracle"}])
    found = resolve_models(models, flags, registry=Registry())
    told: list[JsonDict] = []
    started = Started("r", 2, 2)
    results = made(models, found, Events(started, [lambda _, payload: told.append(payload)]))

    assert [(each["modelId"], each["taskId"], each["completed"]) for each in told] == [
        ("reference/echo", "a", 1), ("reference/echo", "b", 2), ("best", "a", 3), ("best", "b", 4),
    ]  # fmt: skip
    assert [[each["taskId"] for each in model["results"]] for model in results] == [["a", "b"]] * 2
    assert [(model["modelId"], [each["valid"] for each in model["results"]]) for model in results] == [
        ("reference/echo", [True, False]), ("best", [True, True]),
    ]  # fmt: skip
    folders = [(model["summary"].get("meta") or {})["run"] for model in results]
    assert [Path(folder, "journal.jsonl").is_file() for folder in folders] == [True, True]

    meta = meta_of(models, found.runs, results, {"command": "bench multi --api-key=tk-typed-123", "versions": None})
    document = result_document(started, results, meta)
    assert meta["command"] == "bench multi --api-key=[redacted]"
    assert "versions" not in meta
    assert [(each["modelId"], each["model"], each["samplingArgs"]) for each in document["meta"]["models"]] == [
        ("reference/echo", "reference/echo", {"top_p": 0.5}), ("best", "reference/oracle", {"top_p": 0.5}),
    ]  # fmt: skip
