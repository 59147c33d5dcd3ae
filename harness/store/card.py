"""Dataset card: README.md of the folder of a model's runs on an environment, and of a Hub repository. The YAML head is
written in `card_head`; numbers come from `summary.json`. Names and settings are untrusted: they are escaped in prose,
and fenced in code blocks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import StoreError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.settings.built_in import BUILT_INS
from harness.store.atomic import atomic_write, is_closed
from harness.store.card_head import config_entry, configs_yaml, facts_yaml, join_card, merge_config, split_card
from harness.store.card_tables import (
    leaderboard_row,
    passes,
    results,
    unscored_table,
    with_block,
    with_row,
)
from harness.store.card_text import escape, fenced, shown_config
from harness.store.find_runs import runs_in
from harness.store.manifest import Manifest, without_secrets
from harness.store.rundir import RunDir, RunLock
from harness.store.safe_files import read_file
from harness.store.values import count

CONFIG_LIMIT = 20_000
"""Maximum characters of a config.toml on a card, since long Hub pages are hard to read and load."""


def rebuild_card(parent: Path) -> None:
    """Write `parent/README.md` from the run folders in `parent`.

    Each run with rows becomes a config of the dataset; the newest is the default. The file is replaced atomically.
    Concurrent rebuilds wait for each other, so the last one includes all runs.

    Raises:
        StoreError: the card cannot be written.
    """
    with RunLock.take(parent / ".card.lock", f"the card of {parent}", wait=True):
        _rebuild(parent)


def refresh_card(run: RunDir) -> None:
    """Update the card of the parent folder after a run's rows have changed.

    Like `rebuild_card`, but other runs are not read if the run is on the card already.

    Raises:
        StoreError: the card cannot be written.
    """
    path = run.parent / "README.md"
    entry = re.compile(rf"(^- config_name: {re.escape(run.id)}\n(?:  .*\n)*?  description: ).*$", re.MULTILINE)
    with RunLock.take(run.parent / ".card.lock", f"the card of {run.parent}", wait=True):
        try:
            card = read_file(path).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            card = ""
        head, body = split_card(card)
        fresh, found = entry.subn(lambda match: match.group(1) + _rows_fingerprint(run), head)
        if found:
            atomic_write(path, join_card(fresh, body), private=run.is_closed or is_closed(path))
        else:
            _rebuild(run.parent)


def _rebuild(parent: Path) -> None:
    for stale in parent.glob(".README.md.*.tmp"):  # left by a killed process: the lock excludes other writers
        with contextlib.suppress(OSError):
            stale.unlink()
    runs = [RunDir(path) for path in reversed(runs_in(parent))]
    filled = [run for run in runs if run.has_data()]
    entries = [
        config_entry(run.id, f"{run.id}/data/*.parquet", default=run is filled[0], description=_rows_fingerprint(run))
        for run in filled
    ]
    head = facts_yaml(*_facts(filled)) + configs_yaml(entries) if entries else ""
    card = redactor.text(join_card(head, _parent_body(parent, runs)), patterns=False)
    # The card describes all runs, so it is private if one of them is.
    atomic_write(parent / "README.md", card, private=is_closed(parent) or any(run.is_closed for run in runs))


def _facts(runs: Sequence[RunDir]) -> tuple[list[str], int]:
    """Environments of several runs, and the total number of rollouts."""
    env_ids: list[str] = []
    rows = 0
    for run in runs:
        with contextlib.suppress(StoreError):
            env_ids.append(run.read_manifest().env_id)
            rows += count((run.read_summary() or {}).get("num_rollouts"))
    return env_ids, rows


def _rows_fingerprint(run: RunDir) -> str:
    """Return text that changes when a run's parquet files change, to be put into the card's `configs:`. The library
    `datasets` caches rows under a name derived from `configs:`, not from the files. Without this text, it would return
    outdated rows after the run has progressed."""
    files: list[tuple[str, int, int]] = []
    for path in run.row_files():
        with contextlib.suppress(FileNotFoundError):
            stat = path.lstat()
            files.append((path.name, stat.st_size, stat.st_mtime_ns))
    mark = hashlib.sha256(repr(sorted(files)).encode()).hexdigest()[:16]
    return f"{len(files)} parquet files of {sum(size for _, size, _ in files)} bytes, state {mark}"


def merge_remote(existing: str | None, run_dir: Path, repo: str) -> str:
    """Merge one run into the card of a Hub repository. Other configs, other runs and the owner's own text are kept.

    Args:
        existing: The current card; None if the repository has none.
        run_dir: The run folder. Its parquet is expected under `data/{run id}/` of the repository.
        repo: `namespace/name`.

    Raises:
        StoreError: the run folder or the existing card's head cannot be read.
    """
    run = RunDir(run_dir)
    manifest = run.read_manifest()
    if existing is None:
        existing = (
            f"# {escape(repo.rpartition('/')[2])}\n\n"
            "Results of `bench run`: one row is one rollout, one config is one run, the default config is the newest.\n"
        )
        existing = join_card(facts_yaml(*_facts([run])), existing)
    head, body = split_card(existing)
    head = merge_config(head, config_entry(run.id, f"data/{run.id}/*.parquet", default=True))
    summary = run.read_summary()
    section = run_card_section(manifest, summary, source=repo, config_toml=shown_config(run.config_path))
    begin, end = f"<!-- bench run {run.id} -->", f"<!-- end of bench run {run.id} -->"
    body = with_block(body, begin, end, f"{begin}\n{section}{end}")
    return join_card(head, with_row(body, leaderboard_row(manifest, summary), run.id))


def run_card_section(
    manifest: Manifest, summary: JsonDict | None, *, source: str, config_toml: str | None = None
) -> str:
    """Section of a card about one run: results, settings, how to load the rows, how to repeat the run.

    Args:
        manifest: The run.
        summary: Its `summary.json`; None if the run has no summary.
        source: Argument of `load_dataset`: a folder or `namespace/name`.
        config_toml: The run's `config.toml`, with which it can be repeated.

    Returns:
        Markdown that begins with a second-level heading and ends in a newline.
    """
    commit = manifest.git.get("commit")
    facts = [
        ("environment", manifest.env_id),
        ("model", manifest.model),
        ("status", manifest.status),
        ("made from", _origin(manifest)),
        ("started", manifest.created),
        ("planned", _planned(manifest)),
        ("versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ("commit", f"{commit}{' with local changes' if manifest.git.get('dirty') else ''}" if commit else ""),
    ]
    lines = [f"## {escape(manifest.name or manifest.env_id)} · {escape(manifest.model)} · {manifest.id}", ""]
    lines += ["| result | |", "|---|---|"]
    lines += [f"| {name} | {escape(value)} |" for name, value in results(manifest, summary)]
    lines += ["", *unscored_table(summary), "| run | |", "|---|---|"]
    lines += [f"| {name} | {escape(value)} |" for name, value in facts if value]
    lines += ["", "Load the rows, one a rollout:", ""]
    load = f'load_dataset({json.dumps(source)}, {json.dumps(manifest.id)}, split="train")'
    lines += [fenced(f"from datasets import load_dataset\n\nrows = {load}", "python"), ""]
    lines += _how_to_repeat(manifest, config_toml)
    return "\n".join(lines) + "\n"


def _parent_body(parent: Path, runs: list[RunDir]) -> str:
    lines = [f"# {escape(parent.name)}", ""]
    lines += ["Written by `bench` from the run folders here, and replaced after every run: edits are lost.", ""]
    lines += ["One row is one rollout. Each run with rows is a config; without a config name the newest is loaded.", ""]
    lines += [
        "| run | name | status | mean reward | 95 % interval | scored | planned | pass@k |",
        "|---|---|---|---|---|---|---|---|",
    ]
    sections: list[str] = []
    for run in runs:
        try:
            manifest, summary = run.read_manifest(), run.read_summary()
        except StoreError as error:
            lines.append(f"| {escape(run.id)} | {escape(str(error))} | | | | | | |")
            continue
        figures = dict(results(manifest, summary))
        name = ", ".join(filter(None, (manifest.name or manifest.env_id, _origin(manifest))))
        cells = [run.id, name, manifest.status, figures.get("mean reward", "–")]
        cells += [figures.get("95 % interval", "–"), figures.get("scored", "–"), _planned(manifest)]
        lines.append(f"| {' | '.join([*map(escape, cells), passes(summary)])} |")
        if run.has_data():
            # Cards do not name local folders.
            sections.append(run_card_section(manifest, summary, source=".", config_toml=shown_config(run.config_path)))
    return "\n".join(lines) + "\n\n" + "\n".join(sections)


def _planned(manifest: Manifest) -> str:
    planned = manifest.planned
    if not planned:
        return ""
    examples, rollouts = planned.get("num_examples", "?"), planned.get("rollouts_per_example", "?")
    return f"{examples} example{'' if examples == 1 else 's'} × {rollouts} rollout{'' if rollouts == 1 else 's'}"


def _origin(manifest: Manifest) -> str:
    """Description of how a run was derived from another, such as `rescore of RUN`; "" for other runs."""
    derived = manifest.derived
    if not derived:
        return ""
    only = f" (only {derived['only']})" if derived.get("only") else ""
    return f"{derived.get('how')} of {manifest.parent}{only}"


def _how_to_repeat(manifest: Manifest, config_toml: str | None) -> list[str]:
    lines: list[str] = []
    if manifest.command:
        lines += ["Command of the run:", "", fenced(redactor.text(manifest.command), "sh"), ""]
    if config_toml and len(config_toml) <= CONFIG_LIMIT:
        built_in = BUILT_INS.get(str(manifest.settings.get("env.env_id")))
        if manifest.derived:
            use = "Its settings, with which `bench run` would start a new run instead of repeating this one:"
        elif built_in is not None and not built_in.has_rows(manifest.settings.get("env.env_args") or {}):
            use = "Its settings; its rows are in the program that started it, so only that program can repeat it:"
        else:
            use = "To repeat it, save this as `run.toml` and run `bench run run.toml`:"
        lines += [use, ""]
        lines += [fenced(redactor.text(config_toml, patterns=False), "toml"), ""]
    elif manifest.settings:
        settings = json.dumps(without_secrets(manifest.settings), indent=2, default=str)
        lines += ["Its settings:", "", fenced(settings[:CONFIG_LIMIT], "json"), ""]
    return lines
