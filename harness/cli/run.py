"""Implement `bench run`: convert a command line to runs and execute them. Settings are resolved in `settings`, runs are
executed by `cli.execute`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cli.dry_run import dry_run
from harness.cli.grouped import argument, command_of, option, switch
from harness.cli.options import TRUST_HELP, RunOptions, check_resuming, setting_keys
from harness.cli.stdout import print_notices
from harness.cli.trust import check_trust, recorded_in
from harness.core.errors import UsageError
from harness.settings.resolver import resolve
from harness.settings.schema import BY_FLAT_NAME, SHORTCUT_BY_KEY

ENVIRONMENT, MODEL, RESULTS, INVOCATION = "Environment", "Model", "Results", "Invocation"
_GROUPS = (ENVIRONMENT, MODEL, RESULTS, INVOCATION)
_HEADINGS = {"env": ENVIRONMENT, "model": MODEL, "save": RESULTS}


@dataclass(frozen=True, kw_only=True)
class CommandOptions(RunOptions):
    """Options of `bench run`."""

    target: str = argument("TARGET", "Environments separated by commas, or a suite file (.toml).")
    settings: Mapping[str, object]
    set: list[str] | None = option(
        INVOCATION,
        "--set PATH=VALUE",
        "PATH=VALUE, or ENV_ID:PATH=VALUE for one environment: overrides flags and files.",
    )
    dry_run: bool = switch(INVOCATION, "--dry-run", "Show every setting of every run and its origin; call nothing.")
    json: bool = switch(INVOCATION, "--json", "Print the result (or the dry run) as JSON on stdout, and nothing else.")
    resume: bool = switch(INVOCATION, "--resume", "Resume the newest run of the same settings; -n and -r may differ.")
    resume_from: str | None = option(INVOCATION, "--resume-from PATH", "Resume the run in this folder.")
    retry_failed: bool = switch(INVOCATION, "--retry-failed", "With --resume or --resume-from: retry failed rollouts.")
    trust: bool = switch(INVOCATION, "--trust", TRUST_HELP)
    quiet: bool = switch(INVOCATION, "--quiet -q", "No live display.")
    verbose: bool = switch(INVOCATION, "--verbose -v", "Log in detail, and show tracebacks.")

    def check(self) -> None:
        """Reject options that conflict.

        Raises:
            UsageError: an option requires or excludes another.
        """
        resuming = self.resume or self.resume_from is not None
        check_resuming(resume=self.resume, resume_from=self.resume_from, retry_failed=self.retry_failed)
        if self.dry_run and resuming:
            raise UsageError("--dry-run does not read recorded runs: remove --resume and --resume-from")


def run(options: CommandOptions) -> int:
    """Evaluate environments with a model, many at once, and keep the results as a dataset.

    Settings in a suite file override flags; --set overrides both. --dry-run only shows the settings.
    """
    recorded = recorded_in(options.target)
    resolution = resolve(options.target, options.settings, options.set or ())
    print_notices(resolution.notices)
    if options.dry_run:
        return dry_run(resolution, os.environ, as_json=options.json)
    is_ours = recorded is None or check_trust(
        recorded, resolution, trusted=options.trust, asks_model=True, file=Path(options.target)
    )
    from harness.cli.execute import execute

    return execute(resolution, replace(options, is_ours=is_ours))


def _settings() -> dict[str, list[str]]:
    """Return the keys of all settings, grouped by section of the help. A shortcut is in the section of the setting that
    it changes."""
    found: dict[str, list[str]] = {heading: [] for heading in _GROUPS}
    for key in setting_keys():
        shortcut = SHORTCUT_BY_KEY.get(key)
        group = BY_FLAT_NAME[key].group if shortcut is None else shortcut.path[0] if shortcut.path else ""
        found[_HEADINGS.get(group, INVOCATION)].append(key)
    return found


app = command_of(CommandOptions, run, _GROUPS, settings=_settings())
