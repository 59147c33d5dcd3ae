"""Functions that all exporters share: reading a run with the path of the user's home folder removed, strict JSON, and
parsing of untyped messages."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from harness.core.loopback import is_loopback_url, litellm_provider
from harness.core.records import JUDGEMENTS
from harness.core.types import JsonDict, Message, Messages, Prompt, Usage
from harness.settings.providers import PROVIDERS
from harness.stats.summary import Summary, tokens_known
from harness.store.catalogue import read_entry
from harness.store.codec import to_text
from harness.store.export_plain import unbroken
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rows import as_messages
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of
from harness.store.values import table

NOT_A_NUMBER = orjson.Fragment(b"NaN")
"""Value that `json_bytes` writes as NaN. That is not valid JSON, but some readers expect it."""

_DEPTH = 100
"""Maximum depth of nesting in exported JSON; deeper values become strings, since some readers fail at hundreds of
levels."""

_LARGEST = 2**63 - 1

_REFERENCE = "reference/"

_PRIVATE = ("command", "settings", "identity", "derived")
"""Fields of a run's manifest that may contain paths of the user's home folder."""


@dataclass(frozen=True, slots=True)
class Source:
    """A run to be exported."""

    manifest: Manifest
    """The run's manifest. The path of the user's home folder is replaced by `~`, because exports are often shared."""
    recorded: Recorded
    summary: Summary
    """Summary of the run, computed from the current journal."""

    @classmethod
    def read(cls, run: RunDir) -> Source:
        """Read a run's manifest and journal.

        Raises:
            StoreError: the manifest or the journal cannot be read.
        """
        manifest, recorded = run.read_manifest(), read_journal(run)
        summary = summary_of(manifest, recorded, read_entry(run.path).final)
        public = {name: _homeless(getattr(manifest, name), os.path.expanduser("~")) for name in _PRIVATE}
        return cls(dataclasses.replace(manifest, **public), recorded, summary)

    def outcomes(self) -> Iterator[Outcome]:
        """Iterate over the rollouts in the same order as all tables, and load one at a time."""
        return outcomes(self.recorded)

    @property
    def epochs(self) -> int:
        """The planned number of rollouts per example."""
        asked = self.manifest.planned.get("rollouts_per_example")
        return max(1, asked) if isinstance(asked, int) else 1

    @property
    def sampling_args(self) -> JsonDict:
        """The sampling arguments in the run's settings."""
        return table(self.manifest.settings.get("model.sampling_args"))

    @property
    def url(self) -> str | None:
        """Base URL of the model endpoint; "" for the embedded server, None if unknown."""
        return as_text(self.manifest.settings.get("model.api_base_url"))

    @property
    def provider(self) -> str | None:
        """Name of the provider that served the model, according to the tables of bench or litellm; None if unknown."""
        if not self.url:
            return None
        if name := litellm_provider(self.url):
            return name
        host = urlsplit(self.url).hostname
        return next((name for name, known in PROVIDERS.items() if urlsplit(known.url).hostname == host), None)

    @property
    def is_local(self) -> bool:
        """Whether the model was served on this machine: by the embedded server or on a loopback address."""
        return self.manifest.model.startswith(_REFERENCE) or (bool(self.url) and is_loopback_url(self.url or ""))


def _homeless(value: object, home: str) -> Any:
    """Copy a JSON value and replace the path `home` by `~` in all its strings."""
    if isinstance(value, str):
        return re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", value) if len(home) > 1 else value
    if isinstance(value, dict):
        return {name: _homeless(item, home) for name, item in cast(JsonDict, value).items()}
    if isinstance(value, list | tuple):
        return [_homeless(item, home) for item in cast("Sequence[object]", value)]
    return value


def as_list(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """Return the value if it is a string, else None."""
    return value if isinstance(value, str) else None


def text_of(value: object) -> str:
    """Convert any value to a string: a string is returned unchanged, everything else as JSON."""
    return value if isinstance(value, str) else to_text(value)


def json_bytes(value: object) -> bytes:
    """Convert a value to one line of JSON without a newline: valid UTF-8, unique keys, limited nesting. Lone surrogates
    become `�`, and integers beyond 64 bits become text, because the readers' tables cannot hold them."""
    try:
        return orjson.dumps(value, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        return json.dumps(_tamed(value, _DEPTH), ensure_ascii=False, separators=(",", ":")).encode()


def messages_of(prompt: Prompt | object, role: str) -> Messages:
    """Convert a prompt or completion to messages. A string, or an item that is not a message, becomes a message of
    `role`."""
    items = as_messages(prompt, role) if prompt else ()
    return [cast(Message, item) if isinstance(item, dict) else {"role": role, "content": item} for item in items]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a message, parsed from any form that endpoints use."""

    id: str
    name: str
    arguments: JsonDict
    """The arguments; if they are not a JSON object, a dict with their whole text under the key `arguments`."""
    problem: str | None = None
    """The parse error of the arguments, if any."""
    is_custom: bool = False
    """Whether the tool takes free text instead of JSON."""


def calls_of(message: Message) -> list[Call]:
    """Parse the tool calls of a message."""
    calls = [_call(table(item), number) for number, item in enumerate(as_list(message.get("tool_calls")))]
    old = table(message.get("function_call"))
    return [*calls, _call({"function": old}, len(calls))] if old else calls


def judgements_of(outcome: Outcome) -> list[JsonDict]:
    """Return all recorded replies of judges about a rollout."""
    return [table(entry) for entry in as_list(outcome.state.get(JUDGEMENTS)) if table(entry)]


def token_counts(usage: Usage) -> JsonDict | None:
    """Return token counts under the names that Inspect and Every Eval Ever use; None if the endpoint reported none."""
    if not usage.requests or not tokens_known(usage):
        return None
    counts: JsonDict = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_tokens:
        counts["input_tokens_cache_read"] = min(usage.cached_tokens, usage.input_tokens)
    if usage.reasoning_tokens:
        counts["reasoning_tokens"] = usage.reasoning_tokens
    return counts


def _call(item: JsonDict, number: int) -> Call:
    told, custom = table(item.get("function")), table(item.get("custom"))
    call_id, name = as_text(item.get("id")) or f"call_{number}", text_of((told or custom).get("name") or "")
    if custom and not told:
        return Call(call_id, name, {"input": custom.get("input")}, is_custom=True)
    given = told.get("arguments")
    if isinstance(given, dict):
        return Call(call_id, name, cast(JsonDict, given))
    text = text_of("" if given is None else given)
    try:
        # Python's parser accepts NaN and overflows to infinities; neither is valid JSON.
        value = cast(
            object, json.loads(text, parse_constant=lambda _: None, parse_float=_finite) if text.strip() else {}
        )
    except (ValueError, RecursionError) as error:
        return Call(call_id, name, {"arguments": text}, f"the arguments are not JSON: {error}")
    if not isinstance(value, dict):
        return Call(call_id, name, {"arguments": text}, "the arguments are not a JSON object")
    return Call(call_id, name, cast(JsonDict, value))


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _tamed(value: object, levels: int) -> object:
    if isinstance(value, str):
        return unbroken(value)
    if isinstance(value, orjson.Fragment):
        return math.nan
    if isinstance(value, dict | list | tuple) and levels == 0:
        return unbroken(to_text(cast(object, value)))
    if isinstance(value, dict):
        return {unbroken(name): _tamed(item, levels - 1) for name, item in cast(JsonDict, value).items()}
    if isinstance(value, list | tuple):
        return [_tamed(item, levels - 1) for item in cast("list[object]", value)]
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
