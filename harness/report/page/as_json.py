"""JSON form of the report page. The keys are documented in docs/reference/runs.md."""

from __future__ import annotations

from typing import cast

from harness.core.types import JsonDict
from harness.report.page.columns import MEASURES
from harness.report.page.content import PageData
from harness.report.page.gather import EnvPart, Page, RunPart
from harness.report.page.methods import methods_of
from harness.report.result_json import writable
from harness.report.run_facts import settings_json
from harness.report.text import clean
from harness.stats.summary import number


def page_json(page: Page, content: PageData) -> JsonDict:
    """All data of the page as JSON.

    Args:
        page: The runs.
        content: Their examples and transcripts.
    """
    whole: JsonDict = {
        "schema_version": 1,
        "title": page.title,
        "missing": list(page.missing),
        "overall": [
            {
                "model": each.model,
                "mean": number(each.estimate.mean),
                "stderr": number(each.estimate.stderr),
                "ci95": each.estimate.ends,
                "method": each.estimate.method,
            }
            for each in page.overall
        ],
        "environments": [_environment(environment) for environment in page.environments],
        "methods": dict(methods_of(page)),
        "notes": list(content.notes),
        "examples": content.rows,
        "transcripts": content.transcripts,
    }
    return cast(JsonDict, writable(whole))


def _environment(environment: EnvPart) -> JsonDict:
    names = [run.entry.id for run in environment.runs]
    return {
        "env_id": clean(environment.runs[0].entry.env_id),
        "name": environment.name,
        "function": environment.runs[0].measure or None,
        "runs": [_run(run) for run in environment.runs],
        "differences": [each.to_json(names) for each in environment.differences],
    }


def _run(run: RunPart) -> JsonDict:
    entry, manifest = run.entry, run.manifest
    return {
        "id": entry.id,
        "label": run.label,
        "model": manifest.model,
        "name": manifest.name,
        "state": entry.state,
        "note": entry.note or None,
        "created": manifest.created,
        "command": manifest.command,
        "versions": manifest.versions,
        "git": manifest.git,
        "summary": run.summary.to_json(),
        "remarks": list(run.remarks),
        "troubles": [trouble.to_json() for trouble in run.found.troubles],
        "relations": {
            measure: [group.to_json() for group in run.relations[measure]]
            for measure in MEASURES
            if measure in run.relations
        },
        "settings": settings_json(manifest),
    }
