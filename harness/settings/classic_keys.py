"""Keys of classic verifiers suites that are not settings of bench. Keys with an equivalent are converted to settings;
the others are dropped with a notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError
from harness.settings.endpoints import refuse_unspoken
from harness.settings.layers import KeyPath, Layer, LayerName, LayerValue, Origin, flatten, merge
from harness.settings.providers import PROVIDERS
from harness.settings.schema import BUILTIN_KEY_VAR, BUILTIN_URL, BY_PATH, SHORTCUT_BY_KEY
from harness.settings.sections import Place, Rules, read_section
from harness.settings.values import check
from harness.settings.wording import shown, suggestion

_SAMPLING = BY_PATH["model", "sampling_args"]
_HEADERS = BY_PATH["model", "extra_headers"]
_URL, _KEY = BY_PATH["model", "api_base_url"], BY_PATH["model", "api_key_var"]

_NO_EFFECT: Mapping[str, str] = {
    "verbose": "use the command's option of this name",
    "disable_tui": "use the option quiet of the command",
    "resume": "use the command's option of this name",
    "resume_path": "use the option resume_from of the command",
    "independent_scoring": "a rollout is scored as soon as it is generated, unless a reward function needs its group",
    "num_workers": "use `workers` to run an environment in processes of its own",
    "disable_env_server": "use `workers` to run an environment in processes of its own",
    "header_from_state": "headers are the same for all requests",
    "headers_from_state": "headers are the same for all requests",
}

_OTHER_PROVIDERS: Mapping[str, tuple[str, str]] = {
    "prime": (BUILTIN_URL, BUILTIN_KEY_VAR),
    "minimax": ("https://api.minimax.chat/v1", "MINIMAX_API_KEY"),
    "glm": ("https://open.bigmodel.cn/api/paas/v4", "GLM_API_KEY"),
    "local": ("http://localhost:8000/v1", "VLLM_API_KEY"),
    "vllm": ("http://localhost:8000/v1", "VLLM_API_KEY"),
}
"""URL and key variable of the providers that are valid only as values of the key `provider`."""

_SHORTCUTS = ("max_tokens", "temperature")

OTHER_KEYS = (*_NO_EFFECT, *_SHORTCUTS, "provider", "api_client_type", "header", "env_dir_path", "endpoints_path")
"""Keys of classic suite tables that are no settings."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A suite table without its classic keys, and the settings converted from them."""

    table: Mapping[str, object]
    low: Layer = field(default_factory=dict[KeyPath, LayerValue])
    """Settings with lower precedence than the table's own."""
    high: Layer = field(default_factory=dict[KeyPath, LayerValue])
    """Settings with higher precedence than the table's own."""
    notes: tuple[str, ...] = ()
    env_dir_path: LayerValue | None = None
    endpoints_path: Path | None = None


def translate(table: Mapping[str, object], place: Place, layer: LayerName, folder: Path) -> Translated:
    """Extract the classic keys from one suite table.

    Args:
        table: The parsed table.
        place: Location of the table, for messages.
        layer: `defaults` or `eval`.
        folder: Base folder of a relative `endpoints_path`.

    Raises:
        ConfigError: a key has an invalid value.
    """
    reader = _KeyReader(place, layer)
    rest: dict[str, object] = {}
    found = Translated(rest)
    for name, value in table.items():
        if name in _NO_EFFECT:
            if value:
                found = replace(found, notes=(*found.notes, f"{place.of(name)} has no effect: {_NO_EFFECT[name]}"))
        elif name == "env_dir_path":
            entry = LayerValue((name,), reader.text(name, value), reader.origin(name))
            found = replace(found, env_dir_path=entry)
        elif name == "endpoints_path" and layer != "defaults":
            found = replace(found, endpoints_path=folder / reader.text(name, value))
        elif not _is_setting(name, value):
            rest[name] = value
    given = {name: value for name, value in table.items() if _is_setting(name, value)}
    low = merge(*(reader.low(name, value) for name, value in given.items()))
    high = merge(*(reader.headers(name, value) for name, value in given.items()))
    return replace(found, low=merge(found.low, low), high=merge(found.high, high))


def usable(table: Mapping[str, object], place: Place, rules: Rules) -> tuple[dict[str, object], list[str]]:
    """Filter a table that was written for another program: valid settings, and a notice for each other key."""
    kept: dict[str, object] = {}
    notes: list[str] = []
    for name, value in table.items():
        try:
            read_section({name: value}, place, rules)
        except ConfigError as error:
            notes.append(f"{error}; this key is ignored")
        else:
            kept[name] = value
    return kept, notes


def _is_setting(name: str, value: object) -> bool:
    """Return whether a key of a classic suite table is converted to settings of bench."""
    return name in (*_SHORTCUTS, "provider", "api_client_type", "header") or (
        name in ("headers", "extra_headers") and isinstance(value, list)
    )


@dataclass(frozen=True, slots=True)
class _KeyReader:
    """Converts the classic keys of one table."""

    place: Place
    layer: LayerName

    def origin(self, name: str) -> Origin:
        return Origin(self.layer, self.place.of(name))

    def text(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self.place.of(name)} = {shown(value)}: must be a path")
        return value

    def low(self, name: str, value: object) -> Layer:
        origin = self.origin(name)
        if name in _SHORTCUTS:
            return flatten((*_SAMPLING.path, name), sampling_value(name, value, origin.source), lambda _: origin)
        if name == "api_client_type":
            refuse_unspoken(str(value), origin.source)
        if name != "provider":
            return {}
        known = {each: (host.url, host.key_vars[0] if host.key_vars else "") for each, host in PROVIDERS.items()}
        known |= _OTHER_PROVIDERS
        if not isinstance(value, str) or value not in known:
            raise ConfigError(f"{origin.source} = {shown(value)}: unknown provider; {suggestion(str(value), known)}")
        url, key = known[value]
        pairs = ((_URL, url), (_KEY, key))
        return merge(*(flatten(setting.path, text, lambda _: origin) for setting, text in pairs))

    def headers(self, name: str, value: object) -> Layer:
        if name not in ("header", "headers", "extra_headers"):
            return {}
        origin = self.origin(name)
        if not isinstance(value, str | list):
            raise ConfigError(f"{origin.source}: must be a list of 'Name: Value' strings")
        table = check(_HEADERS, [value] if isinstance(value, str) else cast("list[object]", value), origin.source)
        return flatten(_HEADERS.path, table, lambda _: origin)


def sampling_value(name: str, value: object, where: str) -> object:
    """Validate `max_tokens` or `temperature` that is set outside the table `sampling_args`.

    Raises:
        ConfigError: the value is not a number, or `max_tokens` is not an integer.
    """
    is_whole = SHORTCUT_BY_KEY[name].kind == "integer"
    if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
        raise ConfigError(f"{where} = {shown(value)}: must be {'an integer' if is_whole else 'a number'}")
    check(_SAMPLING, {name: value}, where)
    return value
