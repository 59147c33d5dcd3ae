"""Check an environment: its package, its rows, and the scores of reference policies. This module decides which checks
run and in what order. The checks themselves are in separate modules."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from harness.authoring import scores_check
from harness.authoring.arguments import find_loader
from harness.authoring.child_process import ChildTask
from harness.authoring.findings import Finding, Report, fail, skipped
from harness.authoring.package import function_of, package_findings, package_of
from harness.authoring.rows_check import DatasetScan, compare_keys, findings_of, scan_rows
from harness.authoring.trial import Played, TrialRequest, play_policies, score_from_journal
from harness.core.errors import ConfigError, HarnessError, UsageError
from harness.core.messages import COMMANDS
from harness.engine.load_environments import Loader
from harness.envs.environment import Environment
from harness.rubrics.rubric import Rubric
from harness.settings.environment_lookup import require_environment
from harness.settings.environment_sources import source_of
from harness.settings.resolver import ResolvedRun

EXAMPLES = 50
"""Default number of examples to run: enough to include every kind of example, and done in seconds."""

HASH_SEEDS = ("1", "2")

KEYS_TIMEOUT = 600.0
"""Timeout in seconds for loading the environment and reading all rows in another process."""

SLOW_SCORING = 0.2
"""Mean scoring time in seconds per rollout above which the second pass is limited to 10 examples (`FEW`), since that
pass scores one rollout at a time."""

FEW = 10

_NO_REFERENCE = "not possible: the environment has no reference policy (reference_reply)"


def check_environment(
    environment: str | PathLike[str],
    env_args: Mapping[str, Any] | None = None,
    *,
    num_examples: int = EXAMPLES,
    on_finding: Callable[[Finding], None] | None = None,
) -> Report:
    """Check that an environment is sound. `bench env check` prints the returned report.

    Args:
        environment: Name of the environment, or the path of its file or folder.
        env_args: Arguments of its `load_environment`.
        num_examples: Number of examples to run; −1 for all. All rows are checked in any case.
        on_finding: Function to call with each finding as soon as it is known.

    Raises:
        UsageError: there is no such environment, or its `load_environment` does not accept the arguments.
    """
    target = fspath(environment)
    if "," in target or target.endswith(".toml"):
        raise ConfigError(f"{target}: only one environment can be checked at a time; give its name or path")
    if num_examples == 0 or num_examples < -1:
        raise ConfigError(f"-n {num_examples}: must be at least 1, or -1 for all examples")
    asked = TrialRequest(
        target if isinstance(environment, str) else str(Path(target).resolve()), dict(env_args or {}), num_examples
    )
    require_environment(asked.target, COMMANDS["check_command"], Path.cwd())
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        run = asked.resolved("null", Path(folder))
        report = Report(run.env_id, on_finding=on_finding)
        _PlannedCheck(asked, run, Path(folder), report).make()
    return report


@dataclass(frozen=True, slots=True)
class _PlannedCheck:
    """A check of one environment, with the data that its steps share."""

    asked: TrialRequest
    run: ResolvedRun
    folder: Path
    report: Report

    def make(self) -> None:
        if (found := self.run.found) is not None and source_of(self.asked.target) is None:
            package = package_of(found)
            self.report.version = package.version
            loader = find_loader(found.source_files, function_of(package, found.module))
            self.report.add(*package_findings(found, package, loader))
        environment = self._load()
        if environment is None:
            return
        try:
            rows = self._rows(environment)
            if rows is not None and not rows.wrong:
                self._play(environment)
        finally:
            asyncio.run(environment.teardown())

    def _load(self) -> Environment | None:
        try:
            return Loader().load(self.run)
        except HarnessError as error:
            if error.exit_code == UsageError.exit_code:
                raise
            self.report.add(
                fail("load", str(error), "correct this error first: the other checks need a loaded environment")
            )
            return None

    def _rows(self, environment: Environment) -> DatasetScan | None:
        try:
            rows = scan_rows(environment)
            again = Loader().load(self.run)
            second = scan_rows(again)
            asyncio.run(again.teardown())
        except HarnessError as error:
            self.report.add(
                fail("rows", str(error), "correct this error first: the other checks need a readable dataset")
            )
            return None
        self.report.add(*findings_of(rows, environment))
        self.report.add(self._keys(rows, second))
        return rows

    def _keys(self, rows: DatasetScan, second: DatasetScan) -> Finding:
        """Check that the examples' keys are the same when the environment is loaded again, also in new processes with
        other hash seeds."""
        env = self.run.settings.env
        request = [env.env_id, env.env_args, env.extra_env_kwargs]
        # The environment may be in a folder that only this process has on its import path.
        environ = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        loads: list[tuple[str, list[str]]] = [("a second load", second.keys)]
        with ExitStack() as stack:
            children = {
                seed: stack.enter_context(ChildTask("keys", request, {**environ, "PYTHONHASHSEED": seed}))
                for seed in HASH_SEEDS
            }
            for seed, child in children.items():
                keys, ended = child.result(KEYS_TIMEOUT)
                where = f"a process with PYTHONHASHSEED={seed}"
                if not isinstance(keys, list):
                    why = f"the environment does not load in {where}: {keys or f'it {ended}'}"
                    return fail("keys", why, "make it load in a new process")
                loads.append((where, cast("list[str]", keys)))
        return compare_keys(rows, loads)

    def _play(self, environment: Environment) -> None:
        rubric = environment.rubric
        low, high = rubric.reward_range
        has_reference = environment.has_reference
        policies = ["oracle", "null"] if has_reference else ["null"]
        asked = replace(self.asked, per_example=None) if rubric.is_group else self.asked
        first = play_policies(asked, policies, self.folder)
        by_name = dict(zip(policies, first.trials, strict=True))
        self.report.add(*scores_check.scored(first))
        if not rubric.metric_names or low == high:
            why = "the rubric has no reward function" if low == high == 0 else f"every reward is {low:g}"
            self.report.add(skipped("oracle", f"not possible: {why}"), skipped("null", f"not possible: {why}"))
        else:
            self.report.add(
                scores_check.extreme(by_name["oracle"], high, "oracle", "best")
                if has_reference else skipped("oracle", _NO_REFERENCE),
                scores_check.extreme(by_name["null"], low, "null", "worst"),
            )  # fmt: skip
        self._again(asked, policies, first, rubric)

    def _again(self, asked: TrialRequest, policies: list[str], first: Played, rubric: Rubric) -> None:
        """Run the reference policies a second time and score that run again from its journal; report whether the
        results are equal."""
        obstacle = ""
        if any(finding.name == "keys" for finding in self.report.failed):
            obstacle = "not possible: the examples differ between loads"
        elif any(trial.note for trial in first.trials):
            obstacle = "not possible: the first run did not finish"
        if obstacle:
            self.report.add(scores_check.bounds([first], rubric),
                            skipped("repeats", obstacle), skipped("state", obstacle))  # fmt: skip
            return
        seconds = [rollout.seconds for rollout in first.rollouts]
        if seconds and sum(seconds) / len(seconds) > SLOW_SCORING:
            asked = replace(asked, num_examples=FEW if asked.num_examples < 0 else min(FEW, asked.num_examples))
        second = play_policies(asked, policies, self.folder)
        restored = None if rubric.needs_live_state else score_from_journal(asked, second, self.folder / "restored")
        played = [first, second, *([restored] if restored else [])]
        self.report.add(
            scores_check.bounds([first, second], rubric),
            scores_check.repeats(first, second),
            scores_check.state(second, restored),
            scores_check.loop(played),
            *scores_check.warnings(played),
            scores_check.speed(restored or second, under_load=restored is None),
        )
