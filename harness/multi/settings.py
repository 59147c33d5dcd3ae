"""Conversion of models to runs: the endpoint, name, key and all settings of each model's run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError
from harness.core.loopback import LITELLM_SCHEME
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.multi.fields import MODEL_LABELS, as_dict, camel
from harness.multi.models import Model, numbered
from harness.settings.budget import BudgetLimits
from harness.settings.built_in import MULTI_EVAL
from harness.settings.command_line import parse_set
from harness.settings.endpoint_selection import is_reference
from harness.settings.endpoints import Endpoint, Registered, Registry, load_registry
from harness.settings.layers import Origin
from harness.settings.providers import (
    BARE_NAMES_GO_TO,
    LITELLM_PROVIDERS,
    LITERAL_KEY_VAR,
    PROVIDERS,
    require_address,
    route,
)
from harness.settings.resolved_run import ResolvedRun
from harness.settings.resolver import Resolution, resolve
from harness.settings.schema import BY_PATH
from harness.settings.sections import Place
from harness.settings.values import check
from harness.settings.wording import is_secret_header, nearest, suggestion

LITELLM, REFERENCE = "litellm", "reference"
"""Providers that are not in the table of hosts."""

_OWN = {
    "headers": ("model", "extra_headers"),
    "rpm": ("model", "rpm"),
    "tpm": ("model", "tpm"),
    "max_concurrent": ("model", "max_concurrent"),
}
"""Fields of a model → paths of the settings of its endpoint."""

_MODEL, _URL, _KEY = ("model", "model"), ("model", "api_base_url"), ("model", "api_key_var")
_BOUND = ("model", "max_concurrent")
_SAMPLING = "model.sampling_args"


def resolve_models(
    models: Sequence[Model],
    flags: Mapping[str, object],
    sets: Sequence[str] = (),
    *,
    registry: Registry | None = None,
    labels: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Resolution:
    """Resolve all settings of every model's run.

    Args:
        models: The models as the caller gave them.
        flags: Settings of all models for `settings.resolver.resolve`: `env_args`, `sampling_args`, `output_dir`, ….
            `max_concurrent` is the maximum number of concurrent tasks per model.
        sets: `--set` texts, for all models, or for one as `NAME:PATH=VALUE`.
        registry: Aliases for model names; None reads `configs/endpoints.toml`, if it exists.
        labels: Dotted path of a setting → its name in this front end, if it differs from the flag of `bench run`.
        environ: Variables with keys and base URLs; by default the process's environment.

    Returns:
        The run of each model, in the order of the models.

    Raises:
        ConfigError: a model cannot be used, or a setting is invalid; the message names the model.
    """
    known = load_registry(None, Path.cwd()) if registry is None else registry
    environ = os.environ if environ is None else environ
    names = numbered([model.label for model in models])
    runs: list[ResolvedRun] = []
    notices: list[str] = []
    limits = BudgetLimits()
    for model, name in zip(models, names, strict=True):
        _remember_secrets(model)
        alias, entries = _entries(model, known, environ)
        extended = Registry({**known.entries, alias: entries}, known.file) if entries else known
        own = _flags(model, name, alias, entries, flags)
        found = resolve(MULTI_EVAL, own, _sets_for(name, names, sets), registry=extended)
        runs += [_finished(run, model, entries, labels or {}) for run in found.runs]
        notices += found.notices
        limits = found.limits  # limits of the whole invocation, equal for all models
    return Resolution(tuple(runs), tuple(dict.fromkeys(notices)), limits=limits)


def without_rows(run: ResolvedRun) -> ResolvedRun:
    """Copy a run without the task file in its settings, for tasks that a program passed."""
    path = "env.env_args.tasks"
    env = run.settings.env
    args = {name: value for name, value in env.env_args.items() if name != "tasks"}
    settings = run.settings.model_copy(update={"env": env.model_copy(update={"env_args": args})})
    return replace(run, settings=settings, origins={key: at for key, at in run.origins.items() if key != path})


def _remember_secrets(model: Model) -> None:
    redactor.add(model.api_key)
    for name, text in model.headers.items():
        if is_secret_header(name):
            redactor.add(str(text))


def _entries(model: Model, registry: Registry, environ: Mapping[str, str]) -> tuple[str, tuple[Registered, ...]]:
    """Return the model's name in the run's settings, and the endpoints for it; a reference model has none."""
    own = _own_values(model)
    price = _prices(model)
    if not model.provider and not model.base_url and model.name in registry.entries:
        if model.api_key or model.api_key_var:
            own[_KEY] = LITERAL_KEY_VAR if model.api_key else model.api_key_var
        found = registry.entries[model.name]
        return model.name, tuple(_with(each, own, price) for each in found)
    name, url = _address(model, environ)
    if is_reference(name) and not url:
        return name, ()
    try:
        key_var = None if model.api_key else model.api_key_var or None
        way = route(name, url or None, environ=environ, key_var=key_var, has_key=bool(model.api_key))
    except ConfigError as error:
        error.place, error.labels = f"{model.place} ({model.label})", MODEL_LABELS
        raise
    values = {**own, _MODEL: way.model, _URL: way.url, _KEY: way.key_var or ""}
    file, _, at = model.place.rpartition(": ")
    return model.label, (Registered(model.label, values, price, Place(file, at) if file else Place(model.place)),)


def _address(model: Model, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and base URL by which a model is looked up in the table of providers."""
    provider, name = model.provider.strip(), model.name
    if model.base_url or not provider:
        return name, model.base_url
    if provider == LITELLM:
        host, slash, rest = name.partition("/")
        if not slash:
            host, rest = BARE_NAMES_GO_TO, name
        require_address(host, environ)
        return rest, f"{LITELLM_SCHEME}://{host}"
    known = [*PROVIDERS, *sorted(LITELLM_PROVIDERS), LITELLM, REFERENCE]
    if provider not in known:
        near = nearest(provider, known)
        hint = f"did you mean {near!r}?" if near else "for a server of your own, give its address as baseUrl"
        raise ConfigError(f"{model.place} ({model.label}): unknown provider {provider!r}; {hint}")
    return (name if name.startswith(f"{provider}/") and provider == REFERENCE else f"{provider}/{name}"), ""


def _own_values(model: Model) -> dict[tuple[str, str], object]:
    """Return the endpoint settings that the model's own fields give, validated."""
    values: dict[tuple[str, str], object] = {}
    for name, path in _OWN.items():
        value: object = getattr(model, name)
        if value is not None and value != {}:
            values[path] = check(BY_PATH[path], as_dict(value), f"{model.place}: {name}")
    return values


def _prices(model: Model) -> dict[str, float] | None:
    return {name: float(amount) for name, amount in model.price.items()} if model.price else None


def _with(entry: Registered, own: Mapping[tuple[str, str], object], price: Mapping[str, float] | None) -> Registered:
    """Return a registry entry in which the model's own values override others; headers are merged."""
    values = {**entry.values, **own}
    headers = _OWN["headers"]
    if headers in own and headers in entry.values:
        values[headers] = {**cast(JsonDict, entry.values[headers]), **cast(JsonDict, own[headers])}
    return replace(entry, values=values, price=price or entry.price)


def _flags(
    model: Model, name: str, alias: str, entries: Sequence[Registered], common: Mapping[str, object]
) -> dict[str, object]:
    """Return the settings of one model's run, in which its own sampling arguments override the shared ones."""
    given = common.get("sampling_args")
    texts = [json.dumps(given)] if isinstance(given, Mapping) else [given] if isinstance(given, str) else given or []
    own = [_as_text(model)] if model.sampling else []
    asked = cast("int | None", common.get("max_concurrent"))
    args = cast("JsonDict | None", common.get("env_args")) or {}
    sent = entries[0].values.get(_MODEL) if entries else alias
    if args.get("score_output") or sent != model.label:
        args = {**args, "model_id": model.label}  # passed to the scoring hook, and shown in schema errors
    return {
        **common,
        "env_args": args,
        "name": name,
        "model": alias,
        "sampling_args": [*cast("Sequence[str]", texts), *own],
        "max_concurrent": _bound(1 if asked is None else asked, entries, model),
        **({"extra_headers": dict(model.headers)} if model.headers and not entries else {}),
    }


def _as_text(model: Model) -> str:
    try:
        return json.dumps(model.sampling, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{model.place}: samplingArgs: must be JSON values ({error})") from None


def _bound(asked: int, entries: Sequence[Registered], model: Model) -> int:
    """Return the maximum number of concurrent tasks, limited by that of all endpoints of the model together."""
    bounds = [cast("int | None", entry.values.get(_BOUND)) for entry in entries] or [model.max_concurrent]
    allowed = [bound for bound in bounds if bound is not None and bound > 0]
    return min(asked, sum(allowed)) if len(allowed) == len(bounds) and asked > 0 else asked


def _finished(run: ResolvedRun, model: Model, entries: Sequence[Registered], labels: Mapping[str, str]) -> ResolvedRun:
    """Add the limits and prices of a run's endpoints to it, and name the origins of settings as this API does."""
    bounds = {entry.values.get(_URL): entry.values.get(_BOUND) for entry in entries} or {"": model.max_concurrent}
    endpoints: list[Endpoint] = []
    for endpoint in run.endpoints:
        bound = cast("int | None", bounds.get(endpoint.url))
        own = replace(endpoint, max_concurrent=bound if bound is None or bound > 0 else None)
        endpoints.append(replace(own, key=model.api_key) if entries else replace(own, price=_prices(model)))
    words = {**labels, **_field_origins(model)}
    origins = {path: _origin(path, origin, words) for path, origin in run.origins.items()}
    return replace(run, endpoints=tuple(endpoints), origins=origins)


def _field_origins(model: Model) -> dict[str, str]:
    """Return the origins of the settings that the model's own fields determine, by dotted path."""
    where = f"{model.place} ({model.label})"
    words = {"model.model": where, "env.name": where}
    if model.base_url:
        words |= {"model.api_base_url": f"{model.place}.baseUrl", "model.api_key_var": "none was given"}
    elif model.provider:
        words |= dict.fromkeys(("model.api_base_url", "model.api_key_var"), f"provider {model.provider}")
    given = {"model.api_key_var": "api_key" if model.api_key else "api_key_var" if model.api_key_var else None}
    given |= {".".join(path): name for name, path in _OWN.items() if getattr(model, name) not in (None, {})}
    for name in model.sampling:
        own = name in ("temperature", "max_tokens") and name not in model.sampling_args
        given[f"{_SAMPLING}.{name}"] = name if own else "sampling_args"
    return words | {path: f"{model.place}.{camel(name)}" for path, name in given.items() if name is not None}


def _origin(path: str, origin: Origin, words: Mapping[str, str]) -> Origin:
    """Return the origin of a setting, by its name in this API; the origin of a table also applies to its entries."""
    if origin.layer not in ("cli", "registry"):
        return origin
    while path not in words and path.count(".") > 1:
        path = path.rpartition(".")[0]
    return Origin(origin.layer, words[path]) if path in words else origin


def _sets_for(name: str, names: Sequence[str], sets: Sequence[str]) -> list[str]:
    """Return the `--set` texts for one model's run; `fast:model.rpm=60` applies to the model named `fast`."""
    chosen: list[str] = []
    for text in sets:
        # A name may itself contain a colon: `qwen2.5:7b:model.rpm=60`.
        named = max((each for each in names if text.startswith(f"{each}:")), key=len, default=None)
        override = parse_set(text if named is None else text[len(named) + 1 :])
        for path in override.layer:
            _refuse_own(text.partition("=")[0], path)
        if named is not None and override.env_id is None:
            if named == name:
                chosen.append(override.text)
        elif override.env_id in (None, MULTI_EVAL):
            chosen.append(text)
        else:
            known = suggestion(str(override.env_id), [*names, MULTI_EVAL])
            raise ConfigError(f"--set {text}: there is no run named {override.env_id!r}; {known}")
    return chosen


def _refuse_own(name: str, path: Sequence[str]) -> None:
    """Reject a `--set` of a setting that belongs to a model or to the tasks."""
    if tuple(path[:2]) in (_MODEL, _URL, _KEY, ("env", "name")):
        raise ConfigError(f"--set {name}: set the name, address and key of a model in its definition")
    if tuple(path[:2]) == ("env", "env_args"):
        raise ConfigError(f"--set {name}: use the options for tasks and scoring instead")
