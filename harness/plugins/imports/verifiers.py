"""Import of results of verifiers 0.1: a folder of `results.jsonl` and `metadata.json`, as `vf-eval` and `bench export
--format verifiers` write it. Releases before 0.1.9 write metrics as keys of a line, later ones also under `metrics`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from harness.core.errors import UsageError
from harness.core.records import Row, Timing
from harness.core.types import JsonDict, Prompt, Usage
from harness.plugins.imports.reading import json_lines, read_document, validated
from harness.store.import_runs import ImportedRollout, ImportedRun, Importer, ImportOptions

RESULTS, METADATA = "results.jsonl", "metadata.json"


def _parsed(value: Any) -> Any:
    """Parse a value that is a JSON string, since the format stores `info` and tool calls in this form."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which old releases of verifiers write for a missing reward, by None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_Number = Annotated[float | None, BeforeValidator(_finite)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")

    tool_calls: list[Annotated[JsonDict, BeforeValidator(_parsed)]] | None = None


class _Error(BaseModel):
    error: str = ""
    error_chain_str: str = ""
    error_chain_repr: str = ""


class _Span(BaseModel):
    duration: float = 0.0


class _Timing(BaseModel):
    start_time: float = 0.0
    generation: _Span = _Span()
    scoring: _Span = _Span()
    model: _Span = _Span()
    generation_ms: float | None = None
    """Duration in releases before 0.1.10, in milliseconds."""


class _Tokens(BaseModel):
    input_tokens: _Number = None
    output_tokens: _Number = None

    def usage(self) -> Usage | None:
        """Return the counts; None unless both are numbers."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return Usage(int(self.input_tokens), int(self.output_tokens), requests=1)


class _Line(BaseModel):
    """One line of `results.jsonl`. Other keys are metrics (if numbers) and state columns."""

    model_config = ConfigDict(extra="allow")

    example_id: int | str
    src_id: int | str | None = None
    """The dataset's own id, in exports of `bench`, where `example_id` is the number of the example."""
    prompt: list[_Message] | str
    completion: list[_Message] | str = ""
    answer: str | None = None
    task: str | None = None
    info: Annotated[JsonDict | None, BeforeValidator(_parsed)] = None
    reward: _Number = None
    metrics: dict[str, _Number] | None = None
    error: _Error | str | None = None
    is_completed: bool | None = None
    is_truncated: bool | None = None
    stop_condition: str | None = None
    token_usage: _Tokens | None = None
    timing: _Timing | None = None
    generation_ms: float | None = None
    scoring_ms: float | None = None
    total_ms: float | None = None


class _Metadata(BaseModel):
    env_id: str
    model: str
    env_args: JsonDict | None = None
    base_url: str | None = None
    sampling_args: JsonDict | None = None
    state_columns: tuple[str, ...] | None = None
    pass_threshold: float | None = None
    date: str | None = None
    time: float | None = None
    time_ms: float | None = None
    version_info: dict[str, str | None] | None = None
    num_examples: int | None = None
    rollouts_per_example: int | None = None


class VerifiersImporter(Importer):
    """Importer of results that verifiers 0.1 has written."""

    def accepts(self, path: Path) -> bool:
        """Return whether the path is a folder with results of verifiers, or the `results.jsonl` in it."""
        folder = path.parent if path.name == RESULTS else path
        return (folder / RESULTS).is_file() and (folder / METADATA).is_file()

    def read(self, path: Path, options: ImportOptions) -> Iterable[ImportedRun]:
        """Read the results in a folder as one run."""
        if not self.accepts(path):
            raise UsageError(f"{path} is not a folder with {RESULTS} and {METADATA}")
        folder = path.parent if path.name == RESULTS else path
        facts = validated(_Metadata, read_document(folder / METADATA), str(folder / METADATA))
        columns = facts.state_columns or ()
        milliseconds = None if facts.time_ms is None else facts.time_ms / 1000
        yield ImportedRun(
            facts.env_id,
            facts.model,
            _rollouts(folder / RESULTS, columns),
            created=facts.date or "",
            settings={
                "env.env_args": facts.env_args or {},
                "model.api_base_url": facts.base_url or "",
                "model.sampling_args": facts.sampling_args or {},
            },
            state_columns=columns,
            pass_threshold=1.0 if facts.pass_threshold is None else facts.pass_threshold,
            wall_s=facts.time if facts.time is not None else milliseconds,
            versions={name: version for name, version in (facts.version_info or {}).items() if version},
            planned=(facts.num_examples or 0, facts.rollouts_per_example or 0),
        )


IMPORTER = VerifiersImporter()


def _rollouts(path: Path, columns: tuple[str, ...]) -> Iterator[ImportedRollout]:
    for place, line in json_lines(path):
        yield _rollout(validated(_Line, line, place), columns, place)


def _rollout(line: _Line, columns: tuple[str, ...], place: str) -> ImportedRollout:
    extra = line.model_extra or {}
    flat = {
        name: _finite(value)
        for name, value in extra.items()
        if name not in columns and isinstance(value, int | float) and not isinstance(value, bool)
    }
    tokens, timing = line.token_usage, line.timing or _Timing(generation_ms=line.generation_ms)
    seconds = timing.generation.duration if timing.generation_ms is None else timing.generation_ms / 1000
    error = _Error(error=line.error) if isinstance(line.error, str) else line.error or _Error()
    # verifiers scores a rollout that ended with an error, too, usually 0; our own export has no reward for it.
    is_scored_error = bool(line.error) and line.reward is not None
    is_failed = is_scored_error or (line.is_completed is False and line.reward is None)
    return ImportedRollout(
        Row(
            line.example_id if line.src_id is None else line.src_id,
            _messages(line.prompt),
            line.answer or "",
            line.task or "",
            line.info or {},
        ),
        _messages(line.completion),
        None if line.error else line.reward,
        flat if line.metrics is None else dict(line.metrics),
        error.error_chain_repr or error.error_chain_str or error.error,
        failure=(error.error or "error") if is_failed else "",
        stop_condition=line.stop_condition,
        is_truncated=bool(line.is_truncated),
        usage=tokens.usage() if tokens else None,
        timing=Timing(timing.start_time, seconds, timing.model.duration),
        scoring_s=timing.scoring.duration,
        state={name: extra[name] for name in columns if name in extra},
        place=place,
    )


def _messages(prompt: list[_Message] | str) -> Prompt:
    return prompt if isinstance(prompt, str) else [message.model_dump(exclude_unset=True) for message in prompt]
