"""Trust check before a recorded run is repeated: settings made on another machine may run code from the run folder, or
send an API key to a host that only they name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from harness.cli.output import ask, can_ask
from harness.core.errors import UsageError
from harness.core.loopback import is_loopback_url
from harness.report.text import clean
from harness.settings.built_in import built_in
from harness.settings.key_hosts import host_of, is_a_providers, is_a_providers_key, leak
from harness.settings.resolver import Resolution, ResolvedRun
from harness.settings.wording import shown_path
from harness.store.atomic import translated
from harness.store.known_runs import is_known
from harness.store.rundir import RunDir
from harness.store.safe_files import read_file

TRUST = "--trust"


_CODE_ARGS = ("agent", "mcp", "eval_fns", "score_output")
"""Arguments of the built-in environments that refer to code."""

_MODULE = re.compile(r"([^\W\d]\w*)(?:\.\w+)*:\w+(?:\.\w+)*")
"""`module:attribute`; the group is the module's top-level package."""


@dataclass(frozen=True, slots=True)
class _Reasons:
    """Actions that a run's settings would cause and that need the user's trust, such as running code."""

    now: Sequence[str]
    """Actions of this command."""
    later: Sequence[str]
    """Actions that only a later run with these settings would take."""


def recorded_in(target: str) -> RunDir | None:
    """Return the run folder if a target of `bench run` is a recorded settings file; None for other files and names.

    Raises:
        StoreError: the file is a link, or not a regular file.
    """
    path = Path(target)
    is_recorded = target.endswith(".toml") and os.path.lexists(path.parent / "run.json")
    if not is_recorded:
        return None
    with translated("read", path):
        read_file(path)  # raises for irregular files, before the settings are parsed
    return RunDir(path.parent)


def check_trust(
    folder: RunDir, resolution: Resolution, *, trusted: bool, asks_model: bool, file: Path | None = None
) -> bool:
    """Ask before a run from another machine executes its own code, or sends an API key to a host that it names.

    Args:
        folder: Folder of the recorded run.
        resolution: Settings of the run, overridden by the user's.
        trusted: Whether the user has confirmed already.
        asks_model: Whether a model is called, and not only judges.
        file: Settings file of the run; default `config.toml`.

    Returns:
        Whether runs with these settings count as made on this machine from now on.

    Raises:
        UsageError: the user declines, or there is no terminal for the question.
    """
    if trusted:
        return True
    config = file or folder.config_path
    with translated("read", config):
        known = is_known(read_file(config))
    found = _reasons(folder, resolution, config, asks_model=asks_model, known=known)
    if found.now:
        why = "" if known else " was not made on this machine (or its settings were edited)"
        require_trust(f"{folder.path}{why}", found.now)
    return known or not found.later


def require_trust(what: str, reasons: Sequence[str]) -> None:
    """Ask for confirmation on the terminal.

    Args:
        what: Beginning of the sentence.
        reasons: Actions that need trust.

    Raises:
        UsageError: the user declines, or there is no terminal for the question.
    """
    words = f"{clean(what, 2000)}, and this command would {' and '.join(clean(each, 500) for each in reasons)}"
    if not can_ask():
        raise UsageError(f"{words}. Look at its settings first", remedy="if you trust its author, add {trust}")
    if not ask(f"{words}.\nContinue?"):
        raise UsageError("not confirmed, so nothing was done")


def _reasons(folder: RunDir, resolution: Resolution, config: Path, *, asks_model: bool, known: bool) -> _Reasons:
    file = shown_path(config, Path.cwd())
    now: list[str] = []
    later: list[str] = []
    for run in resolution.runs:
        now += _code(run, folder, known=known)
        if not known:
            now += _of_arguments(run, file)
            (now if asks_model else later).extend(_of_model(run, file))
            now += _of_saving(run, file)
    return _Reasons(tuple(dict.fromkeys(now)), tuple(dict.fromkeys([*now, *later])))


def _code(run: ResolvedRun, folder: RunDir, *, known: bool) -> Iterator[str]:
    """Describe the untrusted code that the run's settings refer to. Code is untrusted if it is in or next to the run
    folder or, for a run from another machine, outside of the working directory. Arguments that are code are also
    untrusted if they are not found: they may be addresses, or modules that only an import finds."""
    cwd, found = Path.cwd(), run.found
    named = [found.path] if found is not None and found.path is not None else []
    for name in (*_CODE_ARGS, *found.code_args) if found is not None else ():
        is_code = name in found.code_args if found is not None else False
        for text in _texts(run.settings.env.env_args.get(name)) if is_code or built_in(found) is not None else ():
            places = _places(text, cwd)
            named += places
            is_found = "://" not in text and (places or _is_installed(text))
            is_missing = not is_found and (is_code or ":" in text)
            if is_missing and not known and not _is_typed(run, name):
                yield f"run the code that {name} = {text!r} names"
    for path in named:
        if _is_in(path, folder.path) or (not known and _is_foreign(path, folder.path, cwd)):
            yield f"run the code in {path}"
    for path in found.source_files if found is not None and found.path is None else ():
        if _is_in(path, folder.path) or (not known and _is_in(path, _home(folder.path))):
            yield f"run the code in {path}"


def _places(text: str, cwd: Path) -> list[Path]:
    """Return the existing paths to which a path or `module:attribute` may refer. For a module also the folders that
    contain it, since its file may have another name, such as that of an extension."""
    near = [os.path.expanduser(text)]
    for module in (text.partition(":")[0], text.rpartition(":")[0]):
        parts = [part for part in module.split(".") if part]
        near += ["/".join(parts[: count + 1]) for count in range(len(parts))]
        near += ["/".join(parts) + ".py", *(f"{part}.py" for part in parts[:1])]
    return [cwd / each for each in dict.fromkeys(near) if each and os.path.exists(cwd / each)]


def _is_installed(text: str) -> bool:
    """Return whether `module:attribute` is in an installed module. Does not import it."""
    module = _MODULE.fullmatch(text)
    try:
        spec = find_spec(module[1]) if module is not None else None
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = list(spec.submodule_search_locations or filter(None, [spec.origin]))
    return bool(places) and Path.cwd().resolve() not in {Path(each).resolve().parent for each in places}


def _is_typed(run: ResolvedRun, name: str) -> bool:
    """Return whether the user has typed this argument of the environment."""
    origin = run.origins.get(f"env.env_args.{name}")
    return origin is not None and origin.layer in ("cli", "set")


def _is_foreign(path: Path, run: Path, cwd: Path) -> bool:
    """Return whether a path lies outside of the working directory, or in the subfolder of it that holds the run."""
    real, here, there = path.resolve(), cwd.resolve(), run.resolve()
    if not real.is_relative_to(here):
        return True
    if there.is_relative_to(here) and there != here and real.is_relative_to(here / there.relative_to(here).parts[0]):
        return True
    home = _home(there)
    return here.is_relative_to(home) and home in (here, *here.parents) and _is_below_evals(there)


def _is_below_evals(run: Path) -> bool:
    return run.parent.parent.name == "evals"


def _home(run: Path) -> Path:
    real = run.resolve()
    return real.parents[2] if _is_below_evals(real) else real


def _is_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _of_model(run: ResolvedRun, file: str) -> Iterator[str]:
    own = [run.origins[path].source.startswith(f"{file}: ") for path in ("model.api_base_url", "model.api_key_var")]
    tables = run.registry.entries.get(run.alias or "", ())
    if any(own) or any(each.place.file == file for each in tables) or _registry_is_foreign(run, file):
        for endpoint in run.endpoints:
            yield from _leak(endpoint.url, endpoint.key_var)


def _registry_is_foreign(run: ResolvedRun, file: str) -> bool:
    """Return whether the endpoint registry is a file next to the recorded settings instead of the user's own."""
    return run.alias is not None and os.path.dirname(run.registry.file) == os.path.dirname(file) != ""


def _of_arguments(run: ResolvedRun, file: str) -> Iterator[str]:
    """Describe the hosts and API keys that environment arguments give to judges and other clients."""
    for entries in run.registry.entries.values():
        for each in entries:
            if each.place.file == file:
                key = each.values.get(("model", "api_key_var"))
                yield from _leak(str(each.values.get(("model", "api_base_url"))), str(key) if key else None)
    declared = run.found.trust_args if run.found is not None else {}
    for table in ("env.env_args.", "env.extra_env_kwargs."):
        for path, line in run.described().items():
            if path.startswith(table) and run.origins[path].source.startswith(f"{file}: "):
                yield from _of_argument(path.rpartition(".")[2], line["value"])
                words = declared.get(path.removeprefix(table).partition(".")[0])
                if words is not None:
                    yield from (words.format(text) for text in _texts(line["value"]))


def _of_argument(name: str, value: object) -> Iterator[str]:
    for text in _texts(value):
        if (
            re.match(r"(?:(?:[\w.-]+\+)?https?|litellm)://", text)
            and not is_loopback_url(text)
            and not is_a_providers(text)
        ):
            yield f"have the environment send requests, perhaps with an API key, to {host_of(text)}"
        elif name.endswith("key_var") and text and not is_a_providers_key(text):
            yield f"send the key in {text} to the host of a judge"
        elif name == "debug_dir" and _leads_out(text):
            yield f"write files to {text}"


def _of_saving(run: ResolvedRun, file: str) -> Iterator[str]:
    save = run.settings.save
    if run.origins["save.output_dir"].source.startswith(f"{file}: ") and _leads_out(save.output_dir):
        yield f"write its results to {save.output_dir}"
    if save.save_to_hf_hub and run.origins["save.save_to_hf_hub"].source.startswith(f"{file}: "):
        yield "publish its results on the Hub, with your token"


def _leads_out(path: str) -> bool:
    return not (Path.cwd() / Path(path).expanduser()).resolve().is_relative_to(Path.cwd().resolve())


def _leak(url: str, key_var: str | None) -> Iterator[str]:
    if words := leak(url, key_var):
        yield words


def _texts(value: object) -> Iterator[str]:
    """Iterate over all strings in a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[object, object]", value).values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[object]", value):
            yield from _texts(each)
