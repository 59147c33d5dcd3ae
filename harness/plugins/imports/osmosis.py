"""Import of the results file that `osmosis eval`, `osmosis bench` and `bench eval` write with `-o`: a run for each
model. The file has scores, tokens and durations, but neither prompts nor replies; a dataset file adds the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, Field

from harness.agents.dataset import DatasetReader, row_of
from harness.core.errors import DatasetParseError, DatasetValidationError, UsageError
from harness.core.records import Row, Timing
from harness.core.types import JsonDict
from harness.plugins.imports.reading import (
    begins_with_keys,
    chosen_reward,
    column_names,
    moment,
    read_document,
    score,
    utc,
    validated,
)
from harness.store.import_runs import ImportedRollout, ImportedRun, Importer, ImportOptions

_PRIMARY, _BASELINE = "primary", "baseline"

_STATE = ("tokens",)
"""Column of the dataset with the tokens of a rollout: the file has only the sum of prompt and reply."""


class _Run(BaseModel):
    """One run of the agent on one row."""

    run_index: int = Field(ge=0)
    success: bool
    scores: dict[str, object] = {}
    duration_ms: float | None = None
    tokens: int | None = None
    model_tag: str = _PRIMARY
    error: str | None = None
    reason: str | None = None
    finish_reason: str | None = None
    score_errors: dict[str, str] = {}


class _Rows(BaseModel):
    row_index: int = Field(ge=0)
    runs: list[_Run]


class _Config(BaseModel):
    model: str
    n_runs: int = 1
    pass_threshold: float = 1.0
    eval_fns: list[str] = []
    baseline_model: str | None = None


class _Model(BaseModel):
    model_tag: str = _PRIMARY
    base_url: str | None = None
    sampling_args: JsonDict = {}


class _Dataset(BaseModel):
    path: str = ""


class _Meta(BaseModel):
    """What `bench eval` adds to the documented keys."""

    created: str | None = None
    versions: JsonDict = {}
    agent: str | None = None
    mcp: str | None = None
    dataset: _Dataset = _Dataset()
    models: list[_Model] = []


class _Summary(BaseModel):
    total_duration_ms: float | None = None


class _Results(BaseModel):
    config: _Config
    summary: _Summary
    rows: list[_Rows]
    meta: _Meta = _Meta()


class OsmosisImporter(Importer):
    """Importer of results files of `osmosis eval` and `bench eval`."""

    takes = ("reward", "data")

    def accepts(self, path: Path) -> bool:
        """Return whether the path is a JSON file that begins like a results file."""
        return path.suffix.lower() == ".json" and begins_with_keys(path, "config", "model", "n_runs", "summary")

    def read(self, path: Path, options: ImportOptions) -> Iterable[ImportedRun]:
        """Read the results of each model as one run."""
        results = validated(_Results, read_document(path), str(path))
        config, meta = results.config, results.meta
        rows = None if options.data is None else _dataset(options.data)
        found = (name for row in results.rows for run in row.runs for name in (*run.scores, *run.score_errors))
        names = list(dict.fromkeys([*config.eval_fns, *found]))
        reward = "" if options.reward is None else chosen_reward(names, options.reward, str(path))
        models = {_PRIMARY: config.model} | ({_BASELINE: config.baseline_model} if config.baseline_model else {})
        for tag, model in models.items():
            known = next((each for each in meta.models if each.model_tag == tag), _Model())
            is_only = len(models) == 1
            yield ImportedRun(
                _name(meta, path),
                model,
                _rollouts(path, results, tag, names, reward, rows),
                created=utc(moment(meta.created)),
                settings={"model.api_base_url": known.base_url or "", "model.sampling_args": known.sampling_args},
                state_columns=_STATE,
                pass_threshold=config.pass_threshold,
                wall_s=_seconds(results.summary.total_duration_ms) if is_only else None,
                versions=meta.versions,
                reward=reward or (names[0] if len(names) == 1 else "mean of the eval functions"),
                planned=(0, config.n_runs),
                kind="eval",
            )


IMPORTER = OsmosisImporter()


def _name(meta: _Meta, path: Path) -> str:
    """Return the name that `bench eval` gives such a run: agent and dataset; without them, the name of the file."""
    agent = (meta.agent or "").rpartition(":")[2] or Path(meta.mcp or "").name
    dataset = Path(meta.dataset.path).stem
    return f"{agent}-{dataset}" if agent and dataset else path.stem


def _dataset(path: Path) -> list[Row]:
    """Read the rows of a dataset, as `bench eval` does."""
    try:
        return [row_of(row, number) for number, row in enumerate(DatasetReader(path).iter_rows())]
    except (FileNotFoundError, DatasetParseError, DatasetValidationError, OSError) as error:
        raise UsageError(f"{error}", setting="data", given=str(path)) from error


def _rollouts(
    path: Path, results: _Results, tag: str, names: list[str], reward: str, rows: list[Row] | None
) -> Iterator[ImportedRollout]:
    for row in results.rows:
        if rows is not None and row.row_index >= len(rows):
            raise UsageError(f"{path} has results of row {row.row_index}, but the dataset only has {len(rows)} rows")
        # Without a dataset, the number of the row is all that tells examples apart.
        example = Row(row.row_index, [], info={"row_index": row.row_index}) if rows is None else rows[row.row_index]
        for run in row.runs:
            if run.model_tag == tag:
                yield _rollout(run, example, names, reward, f"{path}, row {row.row_index}, run {run.run_index}")


def _rollout(run: _Run, row: Row, names: list[str], reward: str, place: str) -> ImportedRollout:
    metrics = {name: score(run.scores.get(name)) for name in names}
    reasons = {
        name: run.score_errors.get(name, "the file has no number") for name, value in metrics.items() if value is None
    }
    return ImportedRollout(
        row,
        None,
        metrics[reward] if reward else _mean(metrics),
        column_names(metrics, _STATE),
        run.error or "",
        "" if run.success else run.reason or "error",
        run.run_index,
        run.finish_reason,
        timing=Timing(generation=_seconds(run.duration_ms) or 0.0),
        state={} if run.tokens is None else {"tokens": run.tokens},
        reasons=reasons or ({} if names else {"*": "there are no eval functions"}),
        place=place,
    )


def _mean(metrics: Mapping[str, float | None]) -> float | None:
    """Return the mean of the functions, which is the reward of `bench eval`; None if one has no value."""
    known = [value for value in metrics.values() if value is not None]
    return sum(known) / len(known) if known and len(known) == len(metrics) else None


def _seconds(milliseconds: float | None) -> float | None:
    found = score(milliseconds)
    return None if found is None or found < 0 else found / 1000
