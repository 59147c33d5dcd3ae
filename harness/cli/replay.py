"""Implement `bench replay RUN`: repeat a recorded run with its recorded replies or with another model. `engine.derived`
defines the new run."""

from __future__ import annotations

from dataclasses import replace

from harness.cli.derived_settings import (
    GROUPS,
    RUN,
    SETTINGS,
    DerivedOptions,
    check_derived,
    found_run,
    notices_of,
    of_new_run,
    settings_of,
)
from harness.cli.grouped import command_of
from harness.cli.stdout import print_notices
from harness.cli.trust import check_trust
from harness.core.errors import UsageError


def replay(options: DerivedOptions) -> int:
    """Repeat a recorded run, and compare the new run with it.

    Without --model, the recorded replies are used: no model is called, and no key is needed. With --model, the same
    examples are sent to another model, with the planned number of rollouts. Both make a new run next to the old one.
    """
    from harness.cli.derived_view import execute_derived
    from harness.engine.derived import Derivation
    from harness.store.outcomes import read_journal

    given = options.settings
    model = str(given["model"]) if "model" in given else None
    for flag, key in (("-b", "api_base_url"), ("-k", "api_key_var")):
        if key in given and model is None:
            raise UsageError(f"{flag} requires --model: without it no model is called")
    check_derived(options, asks_model=model is not None)
    parent, _ = found_run(options.output_dir, options.run)
    resolution = settings_of(parent, options, of_new_run(parent, options.output_dir))
    print_notices(notices_of(parent, resolution) if model is not None else ())
    is_ours = check_trust(parent, resolution, trusted=options.trust, asks_model=model is not None)
    derivation = Derivation("replay", parent, read_journal(parent), model=model)
    return execute_derived(resolution, replace(options, is_ours=is_ours), derivation)


app = command_of(
    DerivedOptions, replay, GROUPS, settings={RUN: ("model", "api_base_url", "api_key_var", *SETTINGS[RUN])}
)
