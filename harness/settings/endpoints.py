"""Endpoint registry: aliases of models with URL, key variable and limits. Parses `endpoints.toml` and `endpoints.py`;
from the latter, only one literal is read, and no code is run."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.core.errors import ConfigError
from harness.core.size_limits import read_text
from harness.core.syntax import parse
from harness.settings.schema import BY_PATH, Setting
from harness.settings.sections import Place
from harness.settings.values import check
from harness.settings.wording import shown, shown_path, suggestion

DEFAULT_FILES = ("configs/endpoints.toml", "configs/endpoints.py")

_KEYS = ("model", "url", "key", "headers", "rpm", "tpm", "max_concurrent", "price", "type")
_ALSO = {"api_base_url": "url", "api_key_var": "key", "extra_headers": "headers", "api_client_type": "type"}
"""Other accepted names of keys."""

SPOKEN = "openai_chat_completions"
"""The only supported endpoint type, which is also the default: the OpenAI chat completions format."""

PRICES = ("input", "output", "cached_input")

REPORTED = "reported"
"""Value of `price` for an endpoint that reports the cost of each reply itself."""

_SETTING_OF: Mapping[str, Setting] = {
    "model": BY_PATH["model", "model"],
    "url": BY_PATH["model", "api_base_url"],
    "key": BY_PATH["model", "api_key_var"],
    "headers": BY_PATH["model", "extra_headers"],
    "rpm": BY_PATH["model", "rpm"],
    "tpm": BY_PATH["model", "tpm"],
    "max_concurrent": BY_PATH["model", "max_concurrent"],
}

ENDPOINT_KEYS: Mapping[str, tuple[str, str]] = {
    name: _SETTING_OF[key].path for name, key in {**{key: key for key in _KEYS}, **_ALSO}.items() if key in _SETTING_OF
}
"""Keys of an endpoint, and other accepted names of them, that are settings: path of the setting."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of a model: address, key variable, headers and limits."""

    url: str
    """Base URL; empty for the embedded reference server."""
    key_var: str | None
    """Environment variable with the API key; None sends no key."""
    model: str
    """Name of the model at this endpoint."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    rpm: int | None = None
    """Limit of requests per minute."""
    tpm: int | None = None
    """Limit of tokens per minute."""
    max_concurrent: int | None = None
    """Maximum number of requests in flight at this endpoint; None for the run's limit."""
    price: Mapping[str, float] | None = None
    """US dollars per million tokens, by `input`, `output` and `cached_input`. Empty if the endpoint reports the cost of
    each reply itself; None if unknown."""
    key: str = field(default="", repr=False, compare=False)
    """API key that a program passed as a value; used instead of the variable's value and never recorded."""
    client: Any = field(default=None, repr=False, compare=False)
    """A client that a program passed; `url` is then only its name in records. Never recorded."""


@dataclass(frozen=True, slots=True)
class Registered:
    """One entry of the endpoint registry, without defaults."""

    alias: str
    values: Mapping[tuple[str, str], object]
    """Validated settings by path."""
    price: Mapping[str, float] | None
    place: Place
    type: str = SPOKEN
    """Request format of the endpoint. An unsupported format is rejected when the entry is used."""

    def where(self, path: tuple[str, str]) -> str:
        """Return the file and key of a value, for messages."""
        return self.place.of(next(key for key, setting in _SETTING_OF.items() if setting.path == path))

    def require_spoken(self) -> None:
        """Raise an error if the endpoint needs an unsupported request format.

        Raises:
            ConfigError: the message names the type and an alternative.
        """
        refuse_unspoken(self.type, self.place.of("type"))


@dataclass(frozen=True, slots=True)
class Registry:
    """Endpoint registry: replicas by alias."""

    entries: Mapping[str, tuple[Registered, ...]] = field(default_factory=dict[str, tuple[Registered, ...]])
    file: str = ""
    """Path of the file for messages; empty without a file."""

    def over(self, other: Registry) -> Registry:
        """Return this registry merged with another. Entries of this registry have precedence."""
        return Registry({**other.entries, **self.entries}, other.file or self.file)


def refuse_unspoken(api_type: str, where: str) -> None:
    """Raise an error if an endpoint type is not supported.

    Raises:
        ConfigError: the message names the type and its location.
    """
    if api_type != SPOKEN:
        raise ConfigError(
            f'{where} = {shown(api_type)}: the only supported endpoint type is "{SPOKEN}"; give the provider\'s '
            "OpenAI-compatible URL, or the URL litellm://PROVIDER to use litellm"
        )


def load_registry(path: Path | None, cwd: Path) -> Registry:
    """Load the registry from `path`, or from the default files under `cwd`. Empty if those do not exist.

    Raises:
        ConfigError: `path` does not exist, or the file is invalid.
    """
    if path is None:
        found = next((cwd / name for name in DEFAULT_FILES if (cwd / name).is_file()), None)
        return Registry() if found is None else _read(found, cwd)
    if path.is_dir():
        inside = [path / Path(name).name for name in DEFAULT_FILES]
        path = next((each for each in inside if each.is_file()), inside[0])
    if not path.is_file():
        raise ConfigError(f"{shown_path(path, cwd)}: no such endpoint registry", remedy="name a .toml or .py file")
    return _read(path, cwd)


def _read(path: Path, cwd: Path) -> Registry:
    file = shown_path(path, cwd)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{file}: cannot be read: {exc}") from None
    if path.suffix == ".py":
        return Registry(_from_python(text, file), file)
    if path.suffix != ".toml":
        raise ConfigError(f"{file}: an endpoint registry must be a .toml or .py file")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ConfigError(f"{file}: not valid TOML: {exc}") from None
    for name in document:
        if name != "endpoint":
            raise ConfigError(f"{file}: {name}: unknown table; {suggestion(name, ['endpoint'])}")
    return Registry(read_tables(document.get("endpoint", []), Place(file)), file)


def read_tables(tables: object, place: Place) -> dict[str, tuple[Registered, ...]]:
    """Parse the `[[endpoint]]` tables of a registry or a suite; repeated ids are replicas.

    Raises:
        ConfigError: a table is invalid.
    """
    if not isinstance(tables, list):
        raise ConfigError(f"{place.of('endpoint')}: must be a list of tables: write [[endpoint]]")
    found: dict[str, tuple[Registered, ...]] = {}
    for index, table in enumerate(cast("list[object]", tables)):
        at = Place(place.file, f"endpoint[{index}]")
        if not isinstance(table, dict):
            raise ConfigError(f"{at.of()}: must be a table")
        values = cast("dict[str, object]", table)
        alias = values.get("endpoint_id")
        if not isinstance(alias, str) or not alias:
            raise ConfigError(f"{at.of('endpoint_id')}: must be a string: the alias that runs use as model name")
        _add(found, _entry(alias, {key: item for key, item in values.items() if key != "endpoint_id"}, at))
    return found


def _from_python(text: str, file: str) -> dict[str, tuple[Registered, ...]]:
    found: dict[str, tuple[Registered, ...]] = {}
    for alias, value in _literal(text, file).items():
        place = Place(file, f"ENDPOINTS[{shown(alias)}]")
        replicas = cast("list[object]", value) if isinstance(value, list) else [value]
        for replica in replicas:
            if not isinstance(alias, str) or not alias or not isinstance(replica, dict):
                raise ConfigError(f'{place.of()}: must be a dict with "model", "url" and "key"')
            _add(found, _entry(alias, cast("dict[str, object]", replica), place))
    return found


def _literal(text: str, file: str) -> dict[object, object]:
    """Return the dict that a Python registry file assigns to ENDPOINTS. It must be a literal; no code is run."""
    try:
        statements = parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:  # the last two: nested too deeply
        raise ConfigError(f"{file}: not valid Python: {exc or 'nested too deeply'}") from None
    node = next((found for each in reversed(statements) if (found := _assigned(each)) is not None), None)
    if node is None:
        raise ConfigError(f'{file}: ENDPOINTS: missing; write ENDPOINTS = {{"alias": {{"model": …, "url": …}}}}')
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ConfigError(f"{file}: ENDPOINTS (line {node.lineno}): must be a literal dict; no code is run") from None
    if not isinstance(value, dict):
        raise ConfigError(f'{file}: ENDPOINTS: must be a dict of dicts with "model", "url" and "key", by alias')
    return cast("dict[object, object]", value)


def _assigned(statement: ast.stmt) -> ast.expr | None:
    """Return the expression that a statement assigns to ENDPOINTS; None for any other statement."""
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    else:
        return None
    return value if any(isinstance(each, ast.Name) and each.id == "ENDPOINTS" for each in targets) else None


def _entry(alias: str, table: Mapping[str, object], place: Place) -> Registered:
    given: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for name, value in table.items():
        key = _ALSO.get(name, name)
        if key not in _KEYS:
            raise ConfigError(f"{place.of(name)}: unknown key; {suggestion(name, _KEYS)}")
        if key in given and given[key] != value:
            raise ConfigError(f"{place.of(name)}: means the same as {place.of(spelled[key])}; keep only one of them")
        given[key], spelled[key] = value, name
    if "url" not in given:
        raise ConfigError(f"{place.of('url')}: missing; endpoint {alias!r} needs its base URL")
    api_type = given.get("type", SPOKEN)
    if not isinstance(api_type, str) or not api_type:
        raise ConfigError(f'{place.of(spelled["type"])} = {shown(api_type)}: must be a string, such as "{SPOKEN}"')
    values = {
        setting.path: check(setting, given[key], place.of(spelled[key]))
        for key, setting in _SETTING_OF.items()
        if key in given
    }
    values.setdefault(("model", "model"), alias)
    return Registered(alias, values, _price(given.get("price"), place), place, api_type)


def _price(value: object, place: Place) -> Mapping[str, float] | None:
    if value is None:
        return None
    if value == REPORTED:
        return {}
    if not isinstance(value, dict) or not value:
        raise ConfigError(
            f"{place.of('price')}: must be a table of US dollars per million tokens: {{input = …, output = …}}, or "
            f'"{REPORTED}" if the endpoint reports the cost of each reply'
        )
    price: dict[str, float] = {}
    for key, amount in cast("dict[str, object]", value).items():
        if key not in PRICES:
            raise ConfigError(f"{place.of('price', key)}: unknown key; {suggestion(key, PRICES)}")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < float("inf"):
            raise ConfigError(f"{place.of('price', key)} = {shown(amount)}: must be a number, 0 or more")
        price[key] = float(amount)
    return price


def _add(found: dict[str, tuple[Registered, ...]], entry: Registered) -> None:
    others = found.get(entry.alias, ())
    name = entry.values["model", "model"]
    if others and others[0].values["model", "model"] != name:
        first = shown(others[0].values["model", "model"])
        raise ConfigError(
            f"{entry.place.of('model')} = {shown(name)}: all replicas of {entry.alias!r} must have the same model, "
            f"but {others[0].place.of()} has {first}"
        )
    found[entry.alias] = (*others, entry)
