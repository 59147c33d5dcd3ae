"""Implement `bench gate`: decide whether a candidate may replace its baseline. Both are recorded runs, or, with
`--sequential`, the candidate is a model that answers the baseline's examples until the verdict is clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, replace
from functools import partial
from pathlib import Path

import typer

from harness.cli.attempts import CLUSTER_HELP
from harness.cli.compare import METRIC_HELP, Measured, compared
from harness.cli.derived import OUTPUT, RUN, SETTINGS, DerivedOptions, found_run, override, settings_of
from harness.cli.gate_verdict import COVERAGE, GateView, write_reports
from harness.cli.grouped import argument as positional
from harness.cli.grouped import command_of, option, switch
from harness.cli.output import write_result
from harness.cli.stdout import print_notices
from harness.cli.trust import check_trust
from harness.core.errors import UsageError
from harness.report.compare import verdicts
from harness.settings.resolver import Resolution
from harness.settings.schema import BY_FLAT_NAME, SHORTCUT_BY_KEY
from harness.settings.wording import shown_path
from harness.store.find_runs import choose
from harness.store.invocations import suite_of
from harness.store.rundir import RunDir

GATE, ASK = "Gate", "New run (with --sequential)"


@dataclass(frozen=True, kw_only=True)
class GateOptions(DerivedOptions):
    """Options of `bench gate`."""

    run: str = positional("CANDIDATE", "Run or suite to check. Not with --sequential.", "")
    margin: float = option(GATE, "--margin X", "Acceptable loss of reward.", MISSING)
    baseline: str | None = option(GATE, "--baseline RUN|SUITE", "Run or suite to compare the candidate with.")
    min_coverage: float = option(
        GATE,
        "--min-coverage X",
        "Minimum share of rollouts that are scored, and of examples that are paired. [0.98]",
        COVERAGE,
    )
    metric: str | None = option(GATE, "--metric NAME", METRIC_HELP)
    cluster: str | None = option(GATE, "--cluster KEY", CLUSTER_HELP)
    sequential: bool = switch(
        ASK, "--sequential", "Run model -m on the baseline's examples, in random order, until the verdict is clear."
    )
    against: str | None = option(ASK, "--against RUN|SUITE", "The baseline of --sequential.")
    resume: bool = switch(ASK, "--resume", "Resume the newest run of the same settings.")
    sets: list[str] | None = option(ASK, "--set PATH=VALUE", "Any other setting of the new run; repeatable.")
    trust: bool = switch(
        ASK, "--trust", "Trust a baseline from another machine: run its code and send keys to its hosts."
    )
    junit_file: Path | None = option(OUTPUT, "--junit FILE", "Write a JUnit XML report as well.")
    markdown_file: Path | None = option(OUTPUT, "--markdown FILE", "Write a comment for a pull request as well.")

    def check(self) -> None:
        """Reject options that conflict.

        Raises:
            UsageError: an option requires or excludes another, or a value is out of range.
        """
        if not 0 <= self.margin < float("inf"):
            raise UsageError(
                f"--margin {self.margin:g}: the margin is the acceptable loss of reward; it must be 0 or more"
            )
        if not 0 <= self.min_coverage <= 1:
            raise UsageError(f"--min-coverage {self.min_coverage:g}: must be a share of the rollouts, from 0 to 1")
        if self.sequential or self.against is not None:
            self._check_sequential()
            return
        given = [(BY_FLAT_NAME.get(key) or SHORTCUT_BY_KEY[key]).flag for key in self.settings]
        given += [
            name for name, value in (("--set", self.sets), ("--trust", self.trust), ("--resume", self.resume)) if value
        ]
        if given:
            raise UsageError(
                f"{given[0]} has no effect on recorded runs; to ask a model, add --sequential --against RUN"
            )
        if not self.run:
            raise UsageError("name the run to check, or ask a model with --sequential --against RUN -m MODEL")
        if self.baseline is None:
            raise UsageError("--baseline RUN is missing: the run or suite to compare the candidate with")

    def _check_sequential(self) -> None:
        if not self.sequential:
            raise UsageError("--against needs --sequential; to compare two recorded runs, use --baseline")
        if self.run or self.baseline is not None:
            what = "--baseline" if self.baseline is not None else f"the run {self.run}"
            raise UsageError(
                f"--sequential makes the candidate's run, so {what} cannot be given: name the baseline with --against, "
                "and the model with -m"
            )
        if self.against is None:
            raise UsageError("--sequential needs --against RUN, the baseline")
        if "model" not in self.settings:
            raise UsageError("--sequential needs the candidate's model: -m MODEL")
        for name, value in (("--metric", self.metric), ("--cluster", self.cluster)):
            if value is not None:
                raise UsageError(
                    f"{name} cannot be combined with --sequential, which decides by the reward of examples"
                )


def gate(options: GateOptions) -> int:
    """Check whether a candidate is worse than its baseline by more than a margin.

    Exit code 0: not worse; 1: worse, or too few rollouts were scored; 3: too few examples to decide; 2: wrong usage.

    To pass, the whole 95 % interval of the paired difference must lie above −MARGIN, so that an imprecise measurement
    never passes a candidate. In a suite, every environment must pass.

    With --sequential, a model answers the baseline's examples in random order, and no further example starts once the
    interval decides. That interval is valid at any stopping time.
    """
    if options.sequential:
        return _sequential(options)
    baseline, output_dir = str(options.baseline), Path(options.output_dir)
    hint = _suite_hint(baseline, options.run, output_dir)
    found = compared([baseline, options.run], output_dir, Measured(options.metric, cluster=options.cluster))
    if found.unmatched:
        raise UsageError(f"candidate and baseline must contain the same runs: {' '.join([*found.unmatched, *hint])}")
    rule = verdicts.GateRule(options.margin, options.min_coverage)
    rulings = verdicts.apply_rules(found.matches, rule)
    write_reports(rulings, rule, options.junit_file, options.markdown_file)
    lines = partial(verdicts.verdict_lines, rulings, rule)
    write_result(lines, verdicts.gate_json(rulings, rule), as_json=options.json)
    for line in hint:
        typer.echo(f"note: {line}", err=True)
    return verdicts.EXIT_CODES[verdicts.overall(rulings)]


def _suite_hint(baseline: str, candidate: str, output_dir: Path) -> list[str]:
    """Name the suites of candidate and baseline if single runs of suites were given."""
    words: list[str] = []
    for role, name in (("the candidate", candidate), ("the baseline", baseline)):
        chosen = choose(output_dir, [name])
        if len(chosen.runs) + len(chosen.gone) + len(chosen.failed) == 1:
            suite = suite_of(chosen.runs[0], output_dir)
            if suite is not None:
                count = len(suite.names) + len(suite.failed)
                words.append(f"{role} is one of the {count} runs of the suite {suite.id}; that id names all of them.")
    return words


def _sequential(options: GateOptions) -> int:
    """Run the candidate's model with the settings of each baseline, and print the verdict."""
    from harness.cli.execute import execute

    against = str(options.against)
    chosen = choose(Path(options.output_dir), [against])
    if absent := [*chosen.failed, *(str(path) for path in chosen.gone)]:
        raise UsageError(f"--against {against}: these runs of the suite do not exist: {', '.join(absent)}")
    found = [_settings(RunDir(path), options) for path in chosen.runs]
    resolution = replace(found[0][0], runs=tuple(run for each, _ in found for run in each.runs))
    is_ours = all(each for _, each in found)
    view = GateView(options.min_coverage, options.junit_file, options.markdown_file)
    return execute(resolution, replace(options, is_ours=is_ours), view)


def _settings(baseline: RunDir, options: GateOptions) -> tuple[Resolution, bool]:
    """Return the settings of a candidate's run against one baseline, and whether they count as made on this machine."""
    folder, manifest = found_run(options.output_dir, str(baseline.path))
    if manifest.functions:
        raise UsageError(
            f"{folder.path} has several evaluation functions, but a sequential gate decides by the reward; run the "
            "candidate in full, and compare the two runs"
        )
    source = f"--against {options.against}"
    ours = [
        override(("save", "output_dir"), options.output_dir, "--output-dir"),
        override(("save", "save_to_hf_hub"), False, source),
        override(("save", "save_results"), True, source),
        override(("env", "gate"), str(folder.path.resolve()), source),
        override(("env", "margin"), options.margin, f"--margin {options.margin:g}"),
        override(("env", "until_ci"), None, source),
    ]
    resolution = settings_of(folder, options, ours)
    recorded = f"{shown_path(folder.config_path, Path.cwd())}: "  # the recorded model's URL and headers need no notice
    print_notices(notice for notice in resolution.notices if not notice.startswith(recorded))
    return resolution, check_trust(folder, resolution, trusted=options.trust, asks_model=True)


_KEYS: Sequence[str] = ("model", "api_base_url", "api_key_var", *SETTINGS[RUN])
app = command_of(GateOptions, gate, (GATE, ASK, OUTPUT), settings={ASK: _KEYS})
