"""Select the endpoint of a run's model: resolve an alias and its replicas, and decide URL, key variable and headers.
Uses names of environment variables, never their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast
from urllib.parse import urlsplit

from harness.core.loopback import is_loopback_url, litellm_provider
from harness.settings.endpoints import Endpoint, Registered, Registry
from harness.settings.layers import KeyPath, Layer, LayerValue, Origin, flatten, merge, value_at, without
from harness.settings.schema import BUILTIN_KEY_VAR, BUILTIN_URL, BY_PATH
from harness.settings.wording import is_secret_header, nearest

MODEL: KeyPath = ("model", "model")
URL: KeyPath = ("model", "api_base_url")
KEY: KeyPath = ("model", "api_key_var")
KEY_FLAG = BY_PATH["model", "api_key_var"].flag
HEADERS: KeyPath = ("model", "extra_headers")
BOUND: KeyPath = ("model", "max_concurrent")

REFERENCE_PREFIX = "reference/"

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one run's settings, lowest precedence first."""

    builtin: Layer
    package: Layer
    cli: Layer
    defaults: Layer
    entry: Layer
    override: Layer
    swept: Layer = field(default_factory=dict[KeyPath, LayerValue])
    """Settings of a sweep, which override `entry`."""

    def all(self, registry: Layer) -> Layer:
        """Merge all layers of the run, including the settings of its alias in the registry."""
        return merge(
            self.builtin, self.package, registry, self.cli, self.defaults, self.entry, self.swept, self.override
        )


@dataclass(frozen=True, slots=True)
class RunEndpoints:
    """Merged settings of a run, with its endpoints."""

    merged: Layer
    endpoints: tuple[Endpoint, ...]
    alias: str | None
    asked: Layer
    """Merged settings before the alias and the default URL and key are resolved."""
    left_out: tuple[LeftOut, ...] = ()
    """Values in files that are not used because they are for another host."""
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """URLs that the user's settings give, directly or through an alias, with the source of each; highest precedence
    first."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A URL, key variable or header that a file sets but the run's model does not use."""

    source: str
    why: str


def serve(layers: Layers, registry: Registry) -> RunEndpoints:
    """Merge the layers of a run, and resolve its model's alias.

    Args:
        layers: The run's layers.
        registry: Aliases of models.

    Returns:
        All settings except derived ones, and at least one endpoint.
    """
    named = _named_urls(layers, registry)
    layers, left_out = _without_foreign(layers, registry)
    name = str(layers.all({})[MODEL].value)
    replicas = registry.entries.get(name, ())
    if layers.all(_registry_layer(replicas))[URL].origin.layer != "registry":
        replicas = replicas[:1]  # one URL replaces those of all replicas
    if replicas and _is_moved_by_a_file(layers.all(_replica_layer(replicas[0]))):
        replicas = (_without_credentials(replicas[0]),)
    asked = layers.all(_registry_layer(replicas))
    merged = _settle(asked, replicas)
    if not replicas:
        return RunEndpoints(merged, (_endpoint(merged, None),), None, asked, left_out, named)
    if merged[URL].origin.layer == "registry":
        for replica in replicas:
            replica.require_spoken()
    each = [_settle(layers.all(_replica_layer(replica)), (replica,)) for replica in replicas]
    endpoints = [_endpoint(one, replica.price) for one, replica in zip(each, replicas, strict=True)]
    unlike = [endpoint for index, endpoint in enumerate(endpoints) if endpoint not in endpoints[:index]]
    return RunEndpoints(merged, tuple(unlike), name, asked, left_out, named)


def _without_foreign(layers: Layers, registry: Registry) -> tuple[Layers, tuple[LeftOut, ...]]:
    """Remove URLs, key variables and headers that files (or `--set`) give for a host other than the model's, so that no
    key is sent to a wrong host. An alias has its own URL, key variable and headers, so those of lower file layers are
    for other models. A key variable, or a header that may contain a key, belongs to the URL that applies in its own
    layer; it is not sent to another host that a higher layer sets."""
    files = [layers.defaults, layers.entry, layers.swept, layers.override]
    left_out: list[LeftOut] = []
    naming = max((level for level, layer in enumerate(files) if MODEL in layer), default=0)
    model = files[naming].get(MODEL)
    if model is not None and _brings_its_place(str(model.value), registry, is_set=naming == len(files) - 1):
        why = f"{model.value}(from {model.origin.source}) has its own endpoint"
        for level in range(naming):
            left_out += _drop(files, level, (URL, KEY, HEADERS), why)
    layers = _with_files(layers, files)
    replicas = registry.entries.get(str(layers.all({})[MODEL].value), ())
    url = layers.all(_registry_layer(replicas[:1]))[URL]
    for level in range(len(files)):
        known = _known_url(files[: level + 1], registry, url)
        if known and not same_host(known, str(url.value)):
            why = f"it is for {urlsplit(known).netloc}, but {url.origin.source} selects another host"
            secrets = [path for path in files[level] if path[:2] == HEADERS and is_secret_header(path[-1])]
            left_out += _drop(files, level, (KEY, *secrets), why)
    return _with_files(layers, files), tuple(left_out)


def _with_files(layers: Layers, files: Sequence[Layer]) -> Layers:
    defaults, entry, swept, override = files
    return replace(layers, defaults=defaults, entry=entry, swept=swept, override=override)


def _brings_its_place(model: str, registry: Registry, *, is_set: bool) -> bool:
    """Return whether a model has its own endpoint: an alias, or a reference model that is set with `--set`."""
    return model in registry.entries or (is_set and is_reference(model))


def _known_url(files: Sequence[Layer], registry: Registry, asked: LayerValue) -> str:
    """Return the URL of the highest of these file layers, to which its key variable belongs; "" if they set no URL."""
    seen = merge(*files)
    if URL in seen:
        return str(seen[URL].value)
    replicas = registry.entries.get(str(seen[MODEL].value), ()) if MODEL in seen else ()
    if replicas and asked.origin.layer == "builtin":
        return str(replicas[0].values[cast("tuple[str, str]", URL)])
    return ""


def _drop(files: list[Layer], level: int, paths: Sequence[KeyPath], why: str) -> list[LeftOut]:
    """Remove settings from one file layer, and return the removed values that would have applied.

    Args:
        files: File layers, lowest first; the one at `level` is replaced.
        level: Index of the layer.
        paths: Paths of the settings to remove.
        why: The reason for removing them, for the notice.
    """
    kept = without(files[level], *paths)
    above = merge(*files[level + 1 :])
    gone = [entry for path, entry in files[level].items() if path not in kept and path not in above]
    files[level] = kept
    return [LeftOut(entry.origin.source, why) for entry in gone]


def _is_moved_by_a_file(merged: Layer) -> bool:
    """Return whether a file layer other than the one that sets the alias replaces the alias's URL."""
    layer = merged[URL].origin.layer
    return layer in ("defaults", "eval") and layer != merged[MODEL].origin.layer


def _without_credentials(replica: Registered) -> Registered:
    """Return a registry entry without its key variable and the headers that may contain a key."""
    values = {path: value for path, value in replica.values.items() if path != KEY}
    if HEADERS in values:
        headers = cast("dict[str, str]", values[cast("tuple[str, str]", HEADERS)])
        values[cast("tuple[str, str]", HEADERS)] = {
            name: text for name, text in headers.items() if not is_secret_header(name)
        }
    return replace(replica, values=values)


def _replica_layer(replica: Registered) -> Layer:
    entries: dict[KeyPath, LayerValue] = {}
    for path, value in replica.values.items():
        if path != MODEL:  # the alias is resolved separately
            origin = Origin("registry", replica.where(path))
            entries.update(flatten(path, value, lambda _, origin=origin: origin))
    return entries


def _registry_layer(replicas: Sequence[Registered]) -> Layer:
    """Return the settings of an alias in the endpoint registry: those of its first replica, with the sum of all
    replicas' concurrency limits."""
    if not replicas:
        return {}
    first = _replica_layer(replicas[0])
    bounds = [replica.values.get(cast("tuple[str, str]", BOUND)) for replica in replicas]
    if len(replicas) == 1 or BOUND not in first or not all(isinstance(bound, int) for bound in bounds):
        return first if len(replicas) == 1 else without(first, BOUND)
    numbers = cast("list[int]", bounds)
    total = -1 if -1 in numbers else sum(numbers)
    return {**first, BOUND: replace(first[BOUND], value=total)}


def _settle(merged: Layer, replicas: Sequence[Registered]) -> Layer:
    """Replace an alias by its model name, and set the default URL and key variable, which depend on other settings."""
    settled = dict(merged)
    asked = merged[MODEL]
    if replicas and (name := replicas[0].values[cast("tuple[str, str]", MODEL)]) != asked.value:
        source = f"{replicas[0].where(('model', 'model'))}, for {asked.value} from {asked.origin.source}"
        settled[MODEL] = replace(asked, value=name, origin=Origin("registry", source))
    if is_reference(str(settled[MODEL].value)) and merged[URL].origin.layer == "builtin":
        settled[URL] = replace(merged[URL], value="", origin=Origin("builtin", "the embedded reference server"))
    if merged[KEY].origin.layer == "builtin" and not same_host(str(settled[URL].value), BUILTIN_URL):
        why = (
            f"none: {BUILTIN_KEY_VAR} is sent to {urlsplit(BUILTIN_URL).hostname} only"
            if settled[URL].value
            else "none needed"
        )
        settled[KEY] = replace(merged[KEY], value="", origin=Origin("builtin", why))
    return settled


def _endpoint(merged: Layer, price: Mapping[str, float] | None) -> Endpoint:
    bound = merged[BOUND]
    return Endpoint(
        url=str(merged[URL].value),
        key_var=str(merged[KEY].value) or None,
        model=str(merged[MODEL].value),
        headers=cast("dict[str, str]", value_at(merged, HEADERS)),
        rpm=cast("int | None", merged["model", "rpm"].value),
        tpm=cast("int | None", merged["model", "tpm"].value),
        max_concurrent=cast("int", bound.value) if bound.origin.layer == "registry" and bound.value != -1 else None,
        price=price,
    )


def is_reference(model: str) -> bool:
    """Return whether a model name is that of a reference model."""
    return model.startswith(REFERENCE_PREFIX)


def same_host(one: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port; false if one is not a valid URL."""
    # Compare the scheme too: a key for https must not be sent in clear text.
    try:
        first, second = (
            (parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme))
            for parts in map(urlsplit, (one, other))
        )
    except ValueError:
        return False
    return first == second


def _named_urls(layers: Layers, registry: Registry) -> dict[str, str]:
    named: dict[str, str] = {}
    for layer in (layers.override, layers.swept, layers.entry, layers.defaults, layers.cli):
        if URL in layer:
            named.setdefault(str(layer[URL].value), layer[URL].origin.source)
        for replica in registry.entries.get(str(layer[MODEL].value), ()) if MODEL in layer else ():
            named.setdefault(str(replica.values[cast("tuple[str, str]", URL)]), layer[MODEL].origin.source)
    return named


def serving_notices(served: RunEndpoints, registry: Registry) -> list[str]:
    """Return notices about keys and aliases, which are printed before the first request."""
    notices: list[str] = []
    url, key, model = served.merged[URL], served.merged[KEY], served.merged[MODEL]
    host = urlsplit(str(url.value)).netloc
    if is_loopback_url(str(url.value)):
        return notices
    if key.origin.layer == "builtin" and not key.value and litellm_provider(str(url.value)) is None:
        notices.append(f"no API key is sent to {host}; to send one, give its environment variable with {KEY_FLAG}")
    if key.origin.layer == "registry" and key.value and url.origin.layer != "registry":
        notices.append(
            f"{key.value}, the key of {served.alias}, is sent to {host} ({url.origin.source}); to send "
            f"another key, give its environment variable with {KEY_FLAG}"
        )
    if served.alias is not None and url.origin.layer in ("defaults", "eval"):
        notices.append(
            f"requests for {served.alias} are sent to {host} instead of the alias's own URL, because of "
            f"{url.origin.source}"
        )
    is_default = url.origin.layer == "builtin" and not served.named
    if is_default and served.alias is None and registry.entries and "/" not in str(model.value):
        found = nearest(str(model.value), registry.entries)
        hint = f"did you mean {found!r}?" if found else f"its aliases are {', '.join(registry.entries)}"
        notices.append(
            f"{model.value!r} is not an alias in {registry.file}, so its requests are sent to {host}; {hint}"
        )
    return notices
