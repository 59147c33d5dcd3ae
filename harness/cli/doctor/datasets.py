"""Check that the Hub datasets of a target can be loaded: find their names in the environments' sources, send the Hub
one request for each, and look for a cached copy. Nothing is downloaded."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.syntax import parse
from harness.envs import hub
from harness.envs.import_hooks import import_hooks
from harness.envs.sources import FILE_SUFFIXES, SAMPLE

_LOADERS = ("load_dataset", "load_example_dataset", "read_hub", "RowSource")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FORMATS = (
    *("arrow", "audiofolder", "csv", "generator", "imagefolder", "json", "pandas", "parquet", "sql", "text"),
    *("videofolder", "webdataset", "xml"),
)
"""Names that `load_dataset` takes for builders of local files."""
_AT_ONCE = 8


@dataclass(slots=True)
class HubDataset:
    """A dataset on the Hub.

    Args:
        name: Id of the dataset, `namespace/name`.
        environments: Environments that load the dataset.
        has_sample: Whether the environments contain rows of their own, as `split="sample"`.
    """

    name: str
    environments: list[str] = field(default_factory=list[str])
    has_sample: bool = False


def find_datasets(files: Sequence[Path], arguments: Mapping[str, object]) -> tuple[list[str], bool]:
    """Find the Hub datasets that an environment loads, as far as its source shows them.

    Args:
        files: Python files of the environment.
        arguments: Arguments of its `load_environment`.

    Returns:
        The ids of the datasets, and whether the environment contains rows of its own.
    """
    trees = [tree for file in files if (tree := _tree(file)) is not None]
    values: dict[str, object] = {}
    for tree in trees:
        values |= dict(_constants(tree))
    parameters: dict[str, object] = {}
    for tree in trees:
        parameters |= dict(_defaults(tree, values))
    parameters |= arguments
    calls = [call for tree in trees for call in _calls(tree)]
    has_sample = any(name == "RowSource" for name, _ in calls)
    if not calls or (has_sample and parameters.get("split") == SAMPLE):
        return [], has_sample
    named = _named_datasets()
    chosen = [
        value for name, value in parameters.items() if "dataset" in name and ("/" in str(value) or str(value) in named)
    ]
    known = values | parameters
    # A dataset named by the caller replaces the id in the code.
    loaded = [_value(node, known) for name, node in calls if not (name == "RowSource" and "dataset" in parameters)]
    ids = [named.get(value, value) for value in [*chosen, *loaded] if isinstance(value, str)]
    return [each for each in dict.fromkeys(ids) if _is_hub_id(each)], has_sample


def _tree(file: Path) -> ast.Module | None:
    try:
        return parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value


def _defaults(tree: ast.Module, known: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Defaults of the parameters of `load_environment`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "load_environment":
            places = [*node.args.posonlyargs, *node.args.args]
            with_default = places[len(places) - len(node.args.defaults) :]
            pairs = [*zip(with_default, node.args.defaults, strict=True)]
            pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None]
            yield from ((parameter.arg, _value(default, known)) for parameter, default in pairs)


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Calls that load a dataset, each with the expression of the dataset's name."""
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


def _named_datasets() -> dict[str, str]:
    """Datasets for which import hooks define a short name."""
    return {name: repository for hook in import_hooks() for name, repository in hook.datasets.items()}


def _is_hub_id(name: str) -> bool:
    if name in _FORMATS:
        return False
    is_file = name.endswith(FILE_SUFFIXES) or name.startswith((".", "/", "~")) or Path(name).exists()
    return _HUB_ID.fullmatch(name) is not None and not is_file


def request(dataset: HubDataset) -> str:
    """Describe the request for a dataset, for the user."""
    return f"whether the Hub has {dataset.name}: {_address(dataset.name)}"


def is_offline() -> bool:
    """Whether the Hub's libraries are set to offline mode."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def check_datasets(datasets: Sequence[HubDataset], *, offline: str = "") -> list[Diagnosis]:
    """Check that each dataset can be loaded.

    Args:
        datasets: Datasets that environments load.
        offline: Option or variable that forbids requests to the Hub; "" if none does.
    """
    if offline:
        return [_unanswered(each, f"not asked, because of {offline}") for each in datasets]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(_ask, datasets))


def _address(name: str) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/api/datasets/{name}"


def _ask(dataset: HubDataset) -> Diagnosis:
    import huggingface_hub.utils

    headers = cast(Any, huggingface_hub.utils).build_hf_headers()
    status, why = hub.ask_once("HEAD", _address(dataset.name), headers)
    host = _address("").split("/api/", 1)[0]
    who = f"dataset of {', '.join(dataset.environments)}"
    if status in (401, 403, 404):
        fix = "correct its name, or log in with `hf auth login` to an account that may read it"
        return problem("hub", dataset.name, f"{who}: {host} does not show it (HTTP {status})", fix)
    if status == 429 or 400 <= status < 500:
        return note("hub", dataset.name, f"{who}: {host} answers HTTP {status}", "look again later")
    if not status or status >= 500:
        return _unanswered(dataset, f"{host} cannot be reached ({why or f'HTTP {status}'})")
    return ok(
        "hub", dataset.name, f"{who}: {host} has it{', and a copy is cached' if _is_cached(dataset.name) else ''}"
    )


def _unanswered(dataset: HubDataset, why: str) -> Diagnosis:
    who = f"dataset of {', '.join(dataset.environments)}"
    if _is_cached(dataset.name):
        return ok("hub", dataset.name, f"{who}: {why}; the cached copy is used")
    if why.startswith("not asked, because of --offline"):
        return note("hub", dataset.name, f"{who}: {why}, and no copy is cached", "look again without it")
    sample = """-a '{"split": "sample"}' for rows that need no network, or """ if dataset.has_sample else ""
    fix = f"run with {sample}local files, or load it once where the Hub can be reached"
    return problem("hub", dataset.name, f"{who}: {why}, and no copy is cached", fix)


def _is_cached(name: str) -> bool:
    """Whether `datasets` has cached any configuration of this dataset."""
    from huggingface_hub import constants

    cache = Path(os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME, "datasets")).expanduser()
    wanted = _plain(name.replace("/", "___"))
    try:
        return any(_plain(each.name) == wanted and any(each.glob("*/*/*/*.arrow")) for each in cache.iterdir())
    except OSError:
        return False


def _plain(name: str) -> str:
    """Normalize a name as `datasets` does in cache folders, where capitals become `_` and a small letter."""
    return name.lower().replace("_", "").replace("-", "")
