"""Where a model is asked: aliases, replicas, keys and hosts. Owns which url, key variable and headers a run ends up
with; reads no environment variable, only their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import urlsplit

from harness.config.endpoints import Endpoint, Registered, Registry
from harness.config.layers import Entry, KeyPath, Layer, Origin, flatten, merge, value_at, without
from harness.config.schema import BUILTIN_KEY_VAR, BUILTIN_URL
from harness.config.wording import nearest
from harness.loopback import is_loopback_url, litellm_provider

MODEL: KeyPath = ("model", "model")
URL: KeyPath = ("model", "api_base_url")
KEY: KeyPath = ("model", "api_key_var")
HEADERS: KeyPath = ("model", "extra_headers")
BOUND: KeyPath = ("model", "max_concurrent")

REFERENCE_PREFIX = "reference/"


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one run, lowest first."""

    builtin: Layer
    package: Layer
    cli: Layer
    defaults: Layer
    entry: Layer
    override: Layer

    def all(self, registry: Layer) -> Layer:
        """Everything merged."""
        return merge(self.builtin, self.package, registry, self.cli, self.defaults, self.entry, self.override)


@dataclass(frozen=True, slots=True)
class Served:
    """The merged settings of a run with its endpoints."""

    merged: Layer
    endpoints: tuple[Endpoint, ...]
    alias: str | None
    asked: Layer
    """As merged, before the alias and the built-in url and key were settled."""


def serve(layers: Layers, registry: Registry) -> Served:
    """Merge the layers of a run, its model's alias resolved.

    Args:
        layers: The run's layers.
        registry: What `-m` may name.

    Returns:
        All settings but those that are derived from others, and at least one endpoint.
    """
    layers = drop_foreign(layers)
    name = str(layers.all({})[MODEL].value)
    replicas = registry.entries.get(name, ())
    if layers.all(_registry_layer(replicas))[URL].origin.layer != "registry":
        replicas = replicas[:1]  # a url from above takes the place of them all
    asked = layers.all(_registry_layer(replicas))
    merged = _settle(asked, replicas)
    if not replicas:
        return Served(merged, (_endpoint(merged, None),), None, asked)
    each = [_settle(layers.all(_replica_layer(replica)), (replica,)) for replica in replicas]
    endpoints = [_endpoint(one, replica.price) for one, replica in zip(each, replicas, strict=True)]
    unlike = [endpoint for index, endpoint in enumerate(endpoints) if endpoint not in endpoints[:index]]
    return Served(merged, tuple(unlike), name, asked)


def drop_foreign(layers: Layers) -> Layers:
    """Leave out url, key variable and headers that a file wrote for another model than the one that is asked.

    A file layer (or `--set`) that names a model says where it is asked, too: what lower file layers say of that was
    written for the model that they name, and would send this one, and its key, to the wrong host.
    """
    foreign = (URL, KEY, HEADERS)
    if MODEL in layers.override:
        layers = replace(layers, entry=without(layers.entry, *foreign))
    if MODEL in layers.override or MODEL in layers.entry:
        layers = replace(layers, defaults=without(layers.defaults, *foreign))
    return layers


def _replica_layer(replica: Registered) -> Layer:
    entries: dict[KeyPath, Entry] = {}
    for path, value in replica.values.items():
        if path != MODEL:  # the alias is resolved apart: it was asked for by a higher layer
            origin = Origin("registry", replica.where(path))
            entries.update(flatten(path, value, lambda _, origin=origin: origin))
    return entries


def _registry_layer(replicas: Sequence[Registered]) -> Layer:
    """What the registry says of a run: the first replica, with the bounds of all added up."""
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
    """Put in what depends on the merged result: the model behind an alias, and the built-in url and key variable."""
    settled = dict(merged)
    asked = merged[MODEL]
    if replicas and (name := replicas[0].values[cast("tuple[str, str]", MODEL)]) != asked.value:
        source = f"{replicas[0].where(('model', 'model'))}, for {asked.value} from {asked.origin.source}"
        settled[MODEL] = replace(asked, value=name, origin=Origin("registry", source))
    if is_reference(str(settled[MODEL].value)) and merged[URL].origin.layer == "builtin":
        settled[URL] = replace(merged[URL], value="", origin=Origin("builtin", "the embedded reference server"))
    if merged[KEY].origin.layer == "builtin" and not _same_host(str(settled[URL].value), BUILTIN_URL):
        why = (
            f"none: {BUILTIN_KEY_VAR} goes to {urlsplit(BUILTIN_URL).hostname} only"
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
    """Whether a model's name is that of a reference policy."""
    return model.startswith(REFERENCE_PREFIX)


def _same_host(one: str, other: str) -> bool:
    # the scheme counts: a key that is meant for https must not travel in clear text
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.netloc.lower()) == (second.scheme, second.netloc.lower())


def serving_notices(served: Served, registry: Registry) -> list[str]:
    """What a user should hear about keys and aliases before anything is sent."""
    notices: list[str] = []
    url, key, model = served.merged[URL], served.merged[KEY], served.merged[MODEL]
    host = urlsplit(str(url.value)).netloc
    if is_loopback_url(str(url.value)):
        return notices
    if key.origin.layer == "builtin" and not key.value and litellm_provider(str(url.value)) is None:
        notices.append(f"no key is sent to {host}; name the environment variable that holds it with -k")
    if key.origin.layer == "registry" and key.value and url.origin.layer != "registry":
        notices.append(
            f"{key.value}, the key of {served.alias}, is sent to {host} ({url.origin.source}); -k names another"
        )
    if served.alias is None and url.origin.layer == "builtin" and registry.entries and "/" not in str(model.value):
        found = nearest(str(model.value), registry.entries)
        hint = f"did you mean {found!r}?" if found else f"it knows {', '.join(registry.entries)}"
        notices.append(f"{model.value!r} is no alias in {registry.file}, so it is asked at {host}; {hint}")
    return notices
