"""Checks of the Hub: the token's owner and its rights to push, and whether the datasets of a target can be loaded. The
datasets' names are found in the environments' source code. One request is sent for the token and for each dataset;
nothing is downloaded."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.cli.doctor.endpoints import key_defect
from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.redact import redactor
from harness.core.syntax import parse
from harness.core.types import JsonDict
from harness.envs.hub import ask_once
from harness.envs.import_hooks import import_hooks
from harness.envs.sources import FILE_SUFFIXES, SAMPLE
from harness.store.hub_session import Patience, bounded, foreign_errors, read_failure
from harness.store.values import table

_LOG_IN = "set HF_TOKEN to a token with write access, or run `hf auth login`"
_WRITE = "repo.write"

_LOADERS = ("load_dataset", "load_example_dataset", "read_hub", "RowSource")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FORMATS = (
    *("arrow", "audiofolder", "csv", "generator", "imagefolder", "json", "pandas", "parquet", "sql", "text"),
    *("videofolder", "webdataset", "xml"),
)
"""Names that `load_dataset` interprets as builders for local files, not as datasets on the Hub."""
_AT_ONCE = 8


def endpoint() -> str:
    """Return the URL of the configured Hub."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def token_request() -> str:
    """Describe to the user the request that asks the Hub about the token."""
    return f"who the token belongs to: {endpoint()}/api/whoami-v2"


def unaskable() -> Diagnosis | None:
    """Return a finding if the Hub cannot be queried (offline mode, missing or malformed token); else None."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        return problem("hub", "token", "no request sent: HF_HUB_OFFLINE is set, so nothing can be pushed", "unset it")
    token = get_token()
    if not token:
        return problem("hub", "token", "no Hub token is set, so nothing can be pushed", _LOG_IN)
    if odd := key_defect(token):
        fix = "set HF_TOKEN to the token alone, without anything around it"
        return problem("hub", "token", f"no request sent: the token is malformed: it {odd}", fix)
    return None


def silent(seconds: float) -> Diagnosis:
    """Return the finding for a Hub that did not answer within the timeout."""
    fix = "check the connection to the Hub (HF_ENDPOINT, proxies, name resolution)"
    return problem("hub", "token", f"{endpoint()} has not answered within {seconds:g} s", fix)


def check_hub(repos: Sequence[str | None], seconds: float) -> list[Diagnosis]:
    """Query the owner of the token, and compare its rights with the planned pushes.

    Args:
        repos: Repositories of the runs: `name`, `namespace/name`, or None for the default.
        seconds: Timeout of the request.
    """
    from huggingface_hub import get_session, get_token
    from huggingface_hub.utils import hf_raise_for_status

    token = get_token() or ""
    redactor.add(token)
    patience = Patience(total=seconds, silence=seconds, longest_wait=0.0)
    try:
        with bounded(patience, time.monotonic() + seconds):
            # Not by the library's `whoami`, whose headers may cost another request, for a list of agents.
            reply = get_session().get(f"{endpoint()}/api/whoami-v2", headers={"Authorization": f"Bearer {token}"})
            hf_raise_for_status(reply)
            who = table(reply.json())
    except foreign_errors() as error:
        failure = read_failure(error)
        return [problem("hub", "token", f"{endpoint()}: {failure.cause}", failure.advice or _LOG_IN)]
    return judge(who, repos)


def judge(who: JsonDict, repos: Sequence[str | None]) -> list[Diagnosis]:
    """Check, from the Hub's answer about the token, whether the planned pushes are allowed."""
    name = str(who.get("name", "?"))
    auth = table(who.get("auth"))
    access = table(auth.get("accessToken"))
    role = str(access.get("role", "")) or str(auth.get("type", "unknown"))
    says = f"of {name} at {endpoint()}, with the role {role}"
    roles = {str(each.get("name")): str(each.get("roleInOrg", "")) for each in _tables(who.get("orgs"))}
    spaces = list(dict.fromkeys(repo.partition("/")[0] if repo and "/" in repo else name for repo in repos or [None]))
    found: list[Diagnosis] = []
    if role == "read":
        found.append(problem("hub", "token", f"{says}: the token may not push", _LOG_IN))
    elif role == "fineGrained":
        missing = [space for space in spaces if not _may_write(access, space)]
        if missing:
            fix = f"give the token write access to the repositories of {', '.join(missing)}, or use another"
            found.append(problem("hub", "token", f"{says}, without write access to {', '.join(missing)}", fix))
        else:
            found.append(ok("hub", "token", says))
    elif role == "write":
        found.append(ok("hub", "token", says))
    else:
        found.append(
            note("hub", "token", f"{says}: the Hub does not report whether it may push", "try: bench push RUN")
        )
    for space in spaces:
        if space != name and space not in roles:
            fix = "name your own namespace with -D"
            found.append(problem("hub", space, f"{name} does not belong to {space}, where runs are to be pushed", fix))
        elif roles.get(space) == "read":
            fix = f"ask an administrator of {space} for the right to write, or name another namespace with -D"
            found.append(
                problem("hub", space, f"{name} has only read access to {space}, where runs are to be pushed", fix)
            )
    return found


def _may_write(access: JsonDict, space: str) -> bool:
    """Return whether a fine-grained token may write to any repository of a namespace."""
    return any(
        str(table(scope.get("entity")).get("name", "")).partition("/")[0] == space
        and _WRITE in cast("list[object]", scope.get("permissions") or [])
        for scope in _tables(table(access.get("fineGrained")).get("scoped"))
    )


def _tables(value: Any) -> list[JsonDict]:
    return [table(each) for each in cast("list[object]", value)] if isinstance(value, list) else []


@dataclass(slots=True)
class HubDataset:
    """A dataset on the Hub.

    Args:
        name: Id of the dataset, `namespace/name`.
        environments: Environments that load the dataset.
        has_sample: Whether the environments contain sample rows, selected with `split="sample"`.
    """

    name: str
    environments: list[str] = field(default_factory=list[str])
    has_sample: bool = False


def find_datasets(files: Sequence[Path], arguments: Mapping[str, object]) -> tuple[list[str], bool]:
    """Find the Hub datasets that an environment loads, as far as they are visible in its source code.

    Args:
        files: Python files of the environment.
        arguments: Arguments of its `load_environment`.

    Returns:
        The ids of the datasets, and whether the environment contains its own rows.
    """
    trees: list[ast.Module] = []
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            trees.append(parse(file.read_bytes()))
    values = {name: value for tree in trees for name, value in _constants(tree)}
    parameters = {name: value for tree in trees for name, value in _defaults(tree, values)} | dict(arguments)
    calls = [call for tree in trees for call in _calls(tree)]
    has_sample = any(name == "RowSource" for name, _ in calls)
    if not calls or (has_sample and parameters.get("split") == SAMPLE):
        return [], has_sample
    # Short names of datasets that import hooks define.
    named = {name: repository for hook in import_hooks() for name, repository in hook.datasets.items()}
    chosen = [
        value for name, value in parameters.items() if "dataset" in name and ("/" in str(value) or str(value) in named)
    ]
    known = values | parameters
    # A dataset named by the caller replaces the id in the code.
    loaded = [_value(node, known) for name, node in calls if not (name == "RowSource" and "dataset" in parameters)]
    ids = [named.get(value, value) for value in [*chosen, *loaded] if isinstance(value, str)]
    return [each for each in dict.fromkeys(ids) if _is_hub_id(each)], has_sample


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value


def _defaults(tree: ast.Module, known: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Iterate over the parameters of `load_environment` and their defaults."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "load_environment":
            places = [*node.args.posonlyargs, *node.args.args]
            with_default = places[len(places) - len(node.args.defaults) :]
            pairs = [*zip(with_default, node.args.defaults, strict=True)]
            pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None]
            yield from ((parameter.arg, _value(default, known)) for parameter, default in pairs)


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Find the calls in a source file that load a dataset: the name of each called function, and the argument that
    gives the dataset's id."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _LOADERS:
                named = (each.value for each in node.keywords if each.arg in ("path", "name", "hub_id"))
                first = node.args[0] if node.args else None
                yield name, first or next(named, None)


def _value(node: ast.expr | None, known: Mapping[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    return known.get(node.id) if isinstance(node, ast.Name) else None


def _is_hub_id(name: str) -> bool:
    if name in _FORMATS:
        return False
    is_file = name.endswith(FILE_SUFFIXES) or name.startswith((".", "/", "~")) or Path(name).exists()
    return _HUB_ID.fullmatch(name) is not None and not is_file


def dataset_request(dataset: HubDataset) -> str:
    """Describe to the user the request that checks whether the Hub has a dataset."""
    return f"whether the Hub has {dataset.name}: {_address(dataset.name)}"


def is_offline() -> bool:
    """Return whether the Hub's libraries are set to offline mode."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def check_datasets(datasets: Sequence[HubDataset], *, offline: str = "") -> list[Diagnosis]:
    """Check that each dataset can be loaded.

    Args:
        datasets: Datasets that environments load.
        offline: Option or variable that forbids requests to the Hub; "" if none does.
    """
    if offline:
        return [_unanswered(each, f"no request sent, because of {offline}") for each in datasets]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(_ask, datasets))


def _address(name: str) -> str:
    return f"{endpoint()}/api/datasets/{name}"


def _ask(dataset: HubDataset) -> Diagnosis:
    import huggingface_hub.utils

    headers = cast(Any, huggingface_hub.utils).build_hf_headers()
    status, why = ask_once("HEAD", _address(dataset.name), headers)
    host, who = endpoint(), f"dataset of {', '.join(dataset.environments)}"
    if status in (401, 403, 404):
        fix = "correct its name, or log in with `hf auth login` to an account that may read it"
        return problem("hub", dataset.name, f"{who}: {host} does not show it (HTTP {status})", fix)
    if status == 429 or 400 <= status < 500:
        return note("hub", dataset.name, f"{who}: {host} answers HTTP {status}", "try again later")
    if not status or status >= 500:
        return _unanswered(dataset, f"{host} cannot be reached ({why or f'HTTP {status}'})")
    cached = ", and a copy is cached" if _is_cached(dataset.name) else ""
    return ok("hub", dataset.name, f"{who}: {host} has it{cached}")


def _unanswered(dataset: HubDataset, why: str) -> Diagnosis:
    who = f"dataset of {', '.join(dataset.environments)}"
    if _is_cached(dataset.name):
        return ok("hub", dataset.name, f"{who}: {why}; the cached copy is used")
    if why.startswith("no request sent, because of --offline"):
        return note("hub", dataset.name, f"{who}: {why}, and no copy is cached", "repeat without --offline")
    sample = """-a '{"split": "sample"}' for rows that need no network, or """ if dataset.has_sample else ""
    fix = f"run with {sample}local files, or load the dataset once while the Hub can be reached"
    return problem("hub", dataset.name, f"{who}: {why}, and no copy is cached", fix)


def _is_cached(name: str) -> bool:
    """Return whether `datasets` has cached any configuration of this dataset."""
    from huggingface_hub import constants

    cache = Path(os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME, "datasets")).expanduser()
    wanted = _plain(name.replace("/", "___"))
    try:
        return any(_plain(each.name) == wanted and any(each.glob("*/*/*/*.arrow")) for each in cache.iterdir())
    except OSError:
        return False


def _plain(name: str) -> str:
    """Normalize a name as `datasets` does in cache folders, where a capital becomes `_` and its lower-case letter."""
    return name.lower().replace("_", "").replace("-", "")
