"""Implement `bench rescore RUN`: score recorded rollouts with the current rubric. `engine.derived` selects the scores
to recompute."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.cli.derived_settings import (
    GROUPS,
    RUN,
    SETTINGS,
    DerivedOptions,
    check_derived,
    found_run,
    of_new_run,
    settings_of,
)
from harness.cli.grouped import command_of, option
from harness.cli.trust import check_trust
from harness.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class RescoreOptions(DerivedOptions):
    """Options of `bench rescore`."""

    only: str | None = option(
        RUN,
        "--only unscored|FUNCTION",
        "`unscored`: keep existing scores. Name of a reward function: run that one alone.",
    )

    def check(self) -> None:
        """Reject an empty name.

        Raises:
            UsageError: the name is empty.
        """
        if self.only is not None and not self.only.strip():
            raise UsageError("--only is empty: give `unscored`, or the name of a reward function")


def rescore(options: RescoreOptions) -> int:
    """Score the recorded rollouts of a run with the current rubric, and compare new and old scores.

    Only judges are called. The rollouts are copied unchanged to a new run next to the old one. With --only FUNCTION,
    the recorded values of the other functions are kept.
    """
    from harness.cli.derived_view import execute_derived
    from harness.engine.derived import Derivation
    from harness.store.outcomes import read_journal

    check_derived(options, asks_model=False)
    parent, _ = found_run(options.output_dir, options.run)
    resolution = settings_of(parent, options, of_new_run(parent, options.output_dir))
    is_ours = check_trust(parent, resolution, trusted=options.trust, asks_model=False)
    derivation = Derivation("rescore", parent, read_journal(parent), only=options.only)
    return execute_derived(resolution, replace(options, is_ours=is_ours), derivation)


app = command_of(RescoreOptions, rescore, GROUPS, settings=SETTINGS)
