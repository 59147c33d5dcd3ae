"""Translate messages of engine and settings to the options of `bench eval` and `bench test`."""

from __future__ import annotations

import re

from harness.settings.providers import BASELINE_KEY_VAR, LITERAL_KEY_VAR

_TABLE = (
    (r"-n: num_examples was (\d+) and is now (\d+)", r"--limit: there were \1 rows and now there are \2"),
    (r"-r: rollouts_per_example was", "--n: it was"),
    (r"Give -n (\d+) or more", r"Give --limit \1 or more"),
    (r"Give -r (\d+) or more", r"Give --n \1 or more"),
    (r"use -r (\d+) for more rollouts", r"use --n \1 for more runs"),
)


def in_own_words(words: str) -> str:
    """Replace option names of `bench run` in a message by those of `bench eval` and `bench test`."""
    for pattern, replacement in _TABLE:
        words = re.sub(pattern, replacement, words)
    for variable, option in ((BASELINE_KEY_VAR, "--baseline-api-key"), (LITERAL_KEY_VAR, "--api-key")):
        words = words.replace(variable, option)  # generated names, which the user has not typed
    side = "--baseline-" if "--baseline-" in words else "--"
    return re.sub(r"name its variable with api_key_var\b", f"name its variable with {side}api-key-var", words)
