"""The options of an evaluation: the documented ones, with the documented defaults, and additional ones. Validates them
and selects those that are stored in a record."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypeAlias

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.multi.fields import (
    COUNT,
    FLAG,
    FUNCTION,
    NUMBER,
    PATH,
    TABLE,
    TEXT,
    FieldType,
    as_dict,
    camel,
    check_fields,
    read_fields,
    snake,
)
from harness.settings.command_line import shared_options

Listener: TypeAlias = "Callable[[str, JsonDict], Awaitable[object] | object]"
"""Function that receives the name of an event and its payload; may be async."""

MODEL_CONCURRENCY = 2
RECORDS = ".memory/multi-model-eval"
"""Default folder of evaluation records, below the working directory."""

_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_NOT_STORED = ("score_output", "persist", "persist_dir", "on_event", "events", "api_keys", "output_dir", "resume",
               "retry_failed", "private")  # fmt: skip
"""Options not stored in a record: they do not affect the measurement, cannot be stored, or must not be."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Settings for the record of an evaluation: its content and its file."""

    include_inputs: bool = True
    """Whether to store tasks and models; a record without them cannot be replayed."""
    include_outputs: bool = True
    """Whether to store the results of each task."""
    include_options: bool = True
    path: str | None = None
    """The record's file; by default `{persist_dir}/{run id}.json`."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a multi-model evaluation."""

    model_concurrency: int = MODEL_CONCURRENCY
    """Maximum number of models evaluated concurrently."""
    match_mode: str = "contains"
    """Default of the tasks for the comparison with the expected text: `exact` or `contains`."""
    length_target: float = 400
    """Number of characters for the full length bonus."""
    score_output: Callable[..., object] | str | None = None
    """Scoring function that replaces the documented formula, or its `module:function`. May be async."""
    timeout_ms: float = 0
    """Default timeout of a task, in milliseconds; 0 for no limit."""
    abort_on_error: bool = False
    """Whether a model stops at its first failed task; the others continue."""
    persist: bool | Persist = False
    """Whether to store a record, or a selection of its content."""
    run_id: str | None = None
    chat_options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Default chat options of the tasks: `tools` and request arguments."""
    task_concurrency: int = 1
    """Maximum number of concurrent tasks per model; 1 runs them in order."""
    schema_mode: str = "subset"
    """Schema check: `subset` as documented, or `jsonschema` for all of Draft 2020-12."""
    persist_dir: str = RECORDS
    """Folder of the records and their index."""
    output_dir: str | None = None
    """Folder in which a run folder of each model is stored; None stores nothing."""
    resume: bool = False
    """Resume the newest runs of the same tasks and models in `output_dir`."""
    retry_failed: bool = False
    """With `resume`: retry failed tasks."""
    private: bool = False
    """Make run folders, record and events readable by their owner only."""
    on_event: Listener | None = None
    """Callback for events: the start, every finished task, and the end."""
    events: str | None = None
    """File to which the evaluation's events are written, one JSON object per line."""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Limits by their TOML names, such as `message_limit` of each task and `max_cost` of the whole evaluation."""
    api_keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """API keys by model id, or by the name of their environment variable. Never stored."""
    given: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Names of the options that the caller gave, including those given with their default value: a record stores these,
    and in a replay they override the stored ones."""

    def __new__(cls, *values: object, **named: object) -> Self:
        """Create options and record which of them the caller gives; `__init__` sets their values."""
        made = object.__new__(cls)
        names = [each.name for each in fields(cls) if each.init]
        object.__setattr__(made, "given", (*names[: len(values)], *named))
        return made

    def stored(self) -> JsonDict:
        """Return the given options that a record stores, under the documented names."""
        found: JsonDict = {}
        for name in self.given:
            value = getattr(self, name)
            if name not in _NOT_STORED:
                found[camel(name)] = as_dict(value)
        return found


_NAMES = tuple(each.name for each in fields(Options) if each.name != "given")

_PERSIST_TYPES = {**dict.fromkeys(("include_inputs", "include_outputs", "include_options"), FLAG), "path": PATH}

_TYPES = {
    "run_id": FieldType(
        lambda value: isinstance(value, str) and bool(_RUN_ID.fullmatch(value)),
        "a string of letters, digits, '.', '_' and '-', since it is a file name",
    ),
    "on_event": FUNCTION,
    "score_output": FieldType(
        lambda value: callable(value) or isinstance(value, str), "a function or 'module:function'"
    ),
    **dict.fromkeys(("model_concurrency", "task_concurrency"), COUNT),
    **dict.fromkeys(("length_target", "timeout_ms"), NUMBER),
    **dict.fromkeys(("abort_on_error", "resume", "retry_failed", "private"), FLAG),
    **dict.fromkeys(("match_mode", "schema_mode"), TEXT),
    **dict.fromkeys(("output_dir", "persist_dir", "events"), PATH),
    **dict.fromkeys(("chat_options", "api_keys"), TABLE),
}


def read_options(options: object = None, more: Mapping[str, object] | None = None) -> Options:
    """Read and validate the options of an evaluation.

    Args:
        options: A dict or dataclass, in camelCase or snake_case; None for no options.
        more: Keyword arguments; they override `options`.

    Raises:
        ConfigError: an option is unknown, of the wrong type or out of range.
    """
    if isinstance(options, Options):
        found: JsonDict = {name: getattr(options, name) for name in options.given}
    else:
        found = {} if options is None else read_fields(options, _NAMES, "options")
    found |= read_fields(more or {}, _NAMES, "options")
    check_fields(found, _TYPES, "options")
    values = {name: _plain(name, value) for name, value in found.items()}
    read = Options(**{name: value for name, value in values.items() if value is not None})
    if read.private and read.output_dir is None and read.persist is False and read.events is None:
        raise ConfigError("options: private applies to stored files: give outputDir, persist or events as well")
    if (read.resume or read.retry_failed) and read.output_dir is None:
        raise ConfigError("options: resume and retryFailed need the folder of the earlier runs: give outputDir")
    if read.retry_failed and not read.resume:
        raise ConfigError("options: retryFailed retries the failed tasks of an earlier evaluation: give resume as well")
    return read


def _plain(name: str, value: Any) -> Any:
    """Convert the valid value of an option; None becomes the option's default."""
    if name == "persist" and not isinstance(value, bool | Persist):
        found = read_fields(value, _PERSIST_TYPES, "options: persist")
        check_fields(found, _PERSIST_TYPES, "options: persist")
        return Persist(**{key: _plain(key, item) for key, item in found.items()})
    if name == "settings":
        return shared_options(value, "options: settings")
    if _TYPES.get(name) is COUNT:
        return value or None  # documented: 0 means the default
    return str(value) if isinstance(value, Path) else as_dict(value)


def storable(options: Mapping[str, object]) -> JsonDict:
    """Select the options that a replay may take from a record: none that names code, an output path or a run. Unknown
    options are left out, since the record may be from another system."""
    known = [name for name in _NAMES if name not in (*_NOT_STORED, "run_id")]
    return {name: value for name, value in options.items() if snake(name) in known}
