"""Translation of error messages of engine and settings for callers in Python: names of arguments replace those of
command-line options."""

from __future__ import annotations

import re

_OF_A_CLIENT = (
    (r"Pass a value with --model\.", "Name a model."),
    (r"--api-key", "api_key"),
    (r"--base-url", "api_base"),
    (r"--model", "model"),
)
_OF_A_RUN = (
    (r"-n: num_examples was (\d+) and is now (\d+)", r"rows: there were \1 and now there are \2"),
    (r"-r: rollouts_per_example was", "n_runs: it was"),
    (r"Give -n (\d+) or more", r"Give \1 rows or more"),
    (r"Give -r (\d+) or more", r"Give n_runs=\1 or more"),
    (r"use -r (\d+) for more rollouts", r"use n_runs=\1 for more runs"),
    (r"without --resume", "without resume=True"),
    (r"--resume: ", "resume=True: "),
    (r"--no-save keeps none", "without output_dir there is none"),
)


def of_a_client(words: str) -> str:
    """Translate a message about a model to the argument names of `ExternalLLMClient`."""
    return _translated(words, _OF_A_CLIENT)


def of_a_run(words: str) -> str:
    """Translate a message about a run to the argument names of a runner's method."""
    return _translated(words, _OF_A_RUN)


def _translated(words: str, table: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in table:
        words = re.sub(pattern, replacement, words)
    return words
