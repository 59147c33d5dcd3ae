"""A resolved run: its settings, their origins, and the settings file with which the run can be repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError
from harness.core.redact import REDACTED, hidden, hidden_source
from harness.core.types import JsonDict
from harness.settings.budget import BudgetLimits
from harness.settings.built_in import built_in
from harness.settings.checks import NONE_WORD
from harness.settings.endpoint_selection import is_reference
from harness.settings.endpoints import REPORTED, Endpoint, Registry
from harness.settings.layers import Origin, dotted
from harness.settings.packages import FoundEnvironment
from harness.settings.paths import path_name
from harness.settings.schema import BY_PATH, GROUPS, SETTINGS, RunSettings, Setting
from harness.settings.wording import MASK, is_secret_header

_REPEATS = "# All settings of one run; `bench run` with this file repeats the run."

_OF_A_PROGRAM = (
    "# Settings of one run of a Python program. Its rows are in that program, so only the program can repeat the\n"
    "# run or resume it (resume=True); `bench run` cannot."
)

_HEADER_FLAG = BY_PATH["model", "extra_headers"].flag

_OF_ENDPOINT = ("api_base_url", "api_key_var", "extra_headers", "rpm", "tpm")
"""Settings that a run's file stores in its `[[endpoint]]` tables, because replicas differ in them."""


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """One environment and one model, with all settings resolved."""

    settings: RunSettings
    origins: Mapping[str, Origin]
    """Origin by dotted path: `env.num_examples`, and inside tables also `env.env_args.split`."""
    endpoints: tuple[Endpoint, ...]
    """Endpoints of the model; several are replicas."""
    alias: str | None = None
    """Alias that named the endpoints in the registry; None without one."""
    found: FoundEnvironment | None = None
    registry: Registry = field(default_factory=Registry)
    """Endpoint registry, whose aliases the model and judges may use."""
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """URLs that the user's settings give, directly or through an alias, with the source of each."""

    @property
    def env_id(self) -> str:
        """Name of the environment in folders, tables and datasets: its id, or the last part of a path."""
        if (ours := built_in(self.found)) is not None:
            return ours.name_of(self.settings.env.env_args)
        path = None if self.found is None else self.found.path
        return self.settings.env.env_id if path is None else path_name(path)

    @property
    def kind(self) -> str:
        """Kind of the run in its manifest: `eval` for an agent, `multi` for tasks, otherwise `run`."""
        ours = built_in(self.found)
        return "run" if ours is None else ours.kind

    @property
    def is_reference(self) -> bool:
        """Whether the embedded reference server answers: a `reference/…` model without a URL."""
        return is_reference(self.settings.model.model) and not self.settings.model.api_base_url

    def value(self, setting: Setting) -> object:
        """Return the value of one setting."""
        return getattr(getattr(self.settings, setting.group), setting.key)

    def described(self) -> dict[str, JsonDict]:
        """Return all settings by dotted path as `{"value", "origin", "source"}`, a table before its keys. The result
        can be written as JSON; values of headers that may be credentials are masked."""
        described: dict[str, JsonDict] = {}
        for setting in SETTINGS:
            value = _public(setting, self.value(setting))
            described[setting.dotted] = self._line(setting.dotted, value)
            for path, leaf in _leaves(setting.path, value):
                described[dotted(path)] = self._line(dotted(path), leaf)
        return described

    def _line(self, path: str, value: object) -> JsonDict:
        origin = self.origins[path]
        return {"value": value, "origin": origin.layer, "source": hidden_source(origin.source)}

    def require_secrets(self, *, asks_model: bool = True) -> None:
        """Raise an error if a value in the settings file is `[redacted]`, since without the secret the run would differ
        from the recorded run.

        Args:
            asks_model: Whether to check also values that are used only in requests to the model.

        Raises:
            ConfigError: the message lists the values to give again, and how.
        """
        tables = (self.settings.env.env_args, self.settings.env.extra_env_kwargs, self.settings.model.sampling_args)
        paths = (("env", "env_args"), ("env", "extra_env_kwargs"), ("model", "sampling_args"))
        leaves = [leaf for path, table in zip(paths, tables, strict=True) for leaf in _leaves(path, table)]
        missing = [
            dotted(path) for path, value in leaves if (asks_model or path[0] == "env") and self._lacks(path, value)
        ]
        if missing:
            raise ConfigError(
                f"{self.origins[missing[0]].source} is {REDACTED}, because run folders do not record secrets",
                remedy="give these values again with {set} PATH=VALUE: {missing}",
                missing=", ".join(missing),
            )

    def _lacks(self, path: tuple[str, ...], value: object) -> bool:
        texts = json.dumps(value, ensure_ascii=False, default=str)
        if isinstance(value, str) and "config.toml: " not in self.origins[dotted(path)].source:
            return value == REDACTED  # a user's own file may contain this word
        return REDACTED in texts

    def to_toml(self, judges: Mapping[str, Sequence[Endpoint]] | None = None) -> str:
        """Format all settings of the run as a suite file, with which `bench run` repeats it.

        A comment says whether the run can be repeated; it cannot if its rows are in a Python program. Headers that
        may be credentials are left out, with a comment; arguments with names of secrets are `[redacted]`.

        Args:
            judges: Endpoints of further aliases that the run uses as judges.
        """
        import tomli_w

        document: dict[str, object] = {}
        ours = built_in(self.found)
        is_whole = ours is None or ours.has_rows(self.settings.env.env_args)
        comments = [_REPEATS if is_whole else _OF_A_PROGRAM]
        dropped = [name for name in self.settings.model.extra_headers if is_secret_header(name)]
        comments += [f"# header {name}: not recorded; give it again with {_HEADER_FLAG}" for name in dropped]
        aliases = {**(judges or {}), **({self.alias: self.endpoints} if self.alias is not None else {})}
        if aliases:
            document["endpoint"] = [_endpoint_table(name, each) for name, found in aliases.items() for each in found]
        entry: dict[str, dict[str, object]] = {group: {} for group in GROUPS}
        for setting in SETTINGS:
            if not self._left_out(setting):
                entry[setting.group][setting.key] = _toml_value(setting, self.value(setting))
        if self.alias is not None:
            entry["model"]["model"] = self.alias
        document["eval"] = [entry]
        return "\n".join(comments) + "\n\n" + tomli_w.dumps(document)

    def _left_out(self, setting: Setting) -> bool:
        value = self.value(setting)
        if setting.key in ("hf_hub_dataset_name", "cluster_key"):
            return value is None
        if setting.key == "max_concurrent":  # the limits of the `[[endpoint]]` tables add up to it
            return self.origins[setting.dotted].layer == "registry" and value != -1
        if self.is_reference and setting.key in ("api_base_url", "api_key_var"):
            return True
        return self.alias is not None and setting.key in _OF_ENDPOINT


@dataclass(frozen=True, slots=True)
class Resolution:
    """All runs of one invocation."""

    runs: tuple[ResolvedRun, ...]
    notices: tuple[str, ...] = ()
    """Notices for stderr, one line each, about settings whose effect may be unexpected."""
    source: Path | None = None
    """The suite file; None if the target is not a file."""
    limits: BudgetLimits = field(default_factory=BudgetLimits)
    """Budget of all runs together."""


def _public(setting: Setting, value: object) -> object:
    if setting.door.kind == "headers":
        return {k: MASK if is_secret_header(k) else v for k, v in cast("dict[str, str]", value).items()}
    if setting.is_table:
        return hidden(value)
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


def _leaves(path: tuple[str, ...], value: object) -> list[tuple[tuple[str, ...], object]]:
    if not isinstance(value, dict):
        return []
    found: list[tuple[tuple[str, ...], object]] = []
    for key, item in cast("dict[str, object]", value).items():
        found += _leaves((*path, key), item) or [((*path, key), item)]
    return found


def _toml_value(setting: Setting, value: object) -> object:
    if value is None:
        return NONE_WORD
    if setting.door.kind == "headers":
        return {k: v for k, v in cast("dict[str, str]", value).items() if not is_secret_header(k)}
    value = hidden(value) if setting.is_table else value
    if setting.is_table and _holds_null(value):
        return json.dumps(value, ensure_ascii=False)  # TOML has no null
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


def _holds_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_null(item) for item in cast("dict[str, object]", value).values())
    if isinstance(value, list):
        return any(_holds_null(item) for item in cast("list[object]", value))
    return value is None


def _endpoint_table(alias: str, endpoint: Endpoint) -> dict[str, object]:
    table: dict[str, object] = {
        "endpoint_id": alias,
        "model": endpoint.model,
        "url": endpoint.url,
        "key": endpoint.key_var or "",
        "headers": {k: v for k, v in endpoint.headers.items() if not is_secret_header(k)},
        "rpm": endpoint.rpm,
        "tpm": endpoint.tpm,
        "max_concurrent": endpoint.max_concurrent,
        "price": None if endpoint.price is None else dict(endpoint.price) or REPORTED,
    }
    return {key: value for key, value in table.items() if value is not None}
