"""The models of a multi-model evaluation, given as names, dicts, dataclasses or a file: fields, validation and
labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.multi.fields import (
    AMOUNT,
    INTEGER,
    NUMBER,
    TABLE,
    TEXT,
    FieldType,
    as_dict,
    camel,
    check_fields,
    file_of,
    items_of,
    read_fields,
)
from harness.multi.task_files import read_list
from harness.settings.wording import is_secret_header, shown

UNKNOWN = "unknown"
"""Label of a model that has neither id nor name nor provider."""

_ALIASES = {
    "endpoint": "base_url",
    "api_base_url": "base_url",
    "url": "base_url",
    "model": "model_id",
    "key": "api_key_var",
    "extra_headers": "headers",
    "sampling": "sampling_args",
}
"""Alternative field names, from the endpoint registry and the settings of a run."""

_TYPES = {
    **dict.fromkeys(("id", "provider", "model_id", "base_url", "api_key", "api_key_var"), TEXT),
    **dict.fromkeys(("headers", "sampling_args", "price"), TABLE),
    "temperature": NUMBER,
    "max_tokens": INTEGER,
}

_PRICES: Mapping[str, FieldType] = {"input": AMOUNT, "output": AMOUNT, "cached_input": AMOUNT}
"""Prices, in US dollars per million tokens."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model and its request settings. Without `provider` and `base_url`, the name may be an alias of the endpoint
    registry, a `reference/…` model, a `provider/model`, or an OpenAI model."""

    id: str = ""
    """The model's name in results."""
    provider: str = ""
    """`openai`, `anthropic`, `gemini`, `ollama`, …, `litellm` or `reference`: selects host and key variable."""
    model_id: str = ""
    """The model's name in requests; by default `id`."""
    base_url: str = ""
    """Address of an OpenAI-compatible endpoint; only a key that is given here is sent to it."""
    api_key: str = field(default="", repr=False)
    """The API key itself. Never recorded."""
    api_key_var: str = ""
    """The environment variable of the API key, if not the provider's own."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Additional HTTP headers."""
    sampling_args: Mapping[str, object] = field(default_factory=dict[str, object])
    """Arguments merged into every request body."""
    temperature: float | None = None
    max_tokens: int | None = None
    rpm: int | None = None
    """Requests per minute."""
    tpm: int | None = None
    """Tokens per minute."""
    max_concurrent: int | None = None
    """Maximum number of concurrent requests to the model's endpoint."""
    price: Mapping[str, float] | None = None
    """US dollars per million tokens: `input`, `output`, `cached_input`."""
    place: str = field(default="models", repr=False, compare=False)
    """Where the caller gave the model, such as `models[0]`, for messages."""

    @property
    def label(self) -> str:
        """Name of the model in results (`modelId`). Two models may have the same."""
        return self.id or self.model_id or self.provider or UNKNOWN

    @property
    def name(self) -> str:
        """The model's name in requests."""
        return self.model_id or self.id

    @property
    def sampling(self) -> JsonDict:
        """All sampling arguments of the model."""
        short = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {**{name: value for name, value in short.items() if value is not None}, **self.sampling_args}

    def to_config(self) -> JsonDict:
        """Return the model's given fields for a record, under the documented names, without key and secret headers."""
        config: JsonDict = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("api_key", "place") and value not in ("", None, {}):
                config[camel(each.name)] = as_dict(value)
        if self.headers:
            config["headers"] = {name: text for name, text in self.headers.items() if not is_secret_header(name)}
        return config


_FIELDS = tuple(each.name for each in fields(Model) if each.name != "place")


def read_model(value: object, place: str) -> Model:
    """Read and validate one model.

    Args:
        value: A name, a `Model`, or a dict or dataclass with its fields in camelCase or snake_case.
        place: Where the caller gave the model, for messages.

    Raises:
        ConfigError: a field is unknown or of the wrong type, or the model has no name.
    """
    given: object = {"id": value.strip()} if isinstance(value, str) else value
    if isinstance(given, Model):
        given = {name: item for name in _FIELDS if (item := getattr(given, name)) not in ("", None, {})}
    found = read_fields(given, _FIELDS, place, aliases=_ALIASES)
    check_fields(found, _TYPES, place)
    if "price" in found:
        found["price"] = read_fields(found["price"], _PRICES, f"{place}: price")
        check_fields(found["price"], _PRICES, f"{place}: price")
    model = Model(**found, place=place)
    if not model.name:
        raise ConfigError(f"{place}: the model has no name; give it a modelId, or an id that is the model's name")
    if not model.label.isprintable():
        raise ConfigError(f"{place}: id = {shown(model.label)}: must not contain control characters")
    return model


def read_models(values: object, place: str = "models") -> tuple[Model, ...]:
    """Read and validate the models of an evaluation.

    Args:
        values: A list of names, dicts or dataclasses, or the path of a file; see `load_models`.
        place: The name of the list, for messages.

    Raises:
        ValidationError: the value is not a list, or is empty.
        ConfigError: a model is invalid; the message names it.
    """
    if (file := file_of(values)) is not None:
        return load_models(file)
    items = items_of(values, "Model configs required")
    return tuple(read_model(value, f"{place}[{index}]") for index, value in enumerate(items))


def load_models(path: Path) -> tuple[Model, ...]:
    """Load the models of a file: TOML with `[[model]]` tables, JSON with an array or `{"models": […]}`, or JSONL.

    Args:
        path: The file; its extension selects the format.

    Raises:
        ConfigError: the file cannot be read, or a model is invalid; the message names file and model.
        ValidationError: the file has no models.
    """
    key, values = read_list(path, ("models", "model"))
    return read_models(values, f"{path}: {key}")


def numbered(labels: Sequence[str]) -> list[str]:
    """Make the labels of several models unique by adding numbers to duplicates."""
    taken = set(labels)
    names: list[str] = []
    for label in labels:
        name, number = label, 1
        while name in names or (number > 1 and name in taken):
            number += 1
            name = f"{label}[{number}]"
        names.append(name)
    return names
