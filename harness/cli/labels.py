"""Spelling of settings and options in the messages of each command. An option without an entry has its own name."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.messages import COMMANDS, Labels
from harness.multi.fields import MODEL_LABELS
from harness.settings.providers import BASELINE_KEY_VAR, LITERAL_KEY_VAR
from harness.settings.schema import SETTINGS, SHORTCUTS

_OPTIONS = {"output": "-o", "runs_dir": "--output-dir"}


class OptionLabels(Labels):
    """Spelling of a command's options in its messages: without an entry, `retry_failed` becomes `--retry-failed`."""

    def __missing__(self, name: str) -> str:
        return _OPTIONS.get(name) or COMMANDS.get(name) or f"--{name.replace('_', '-')}"


RUN = OptionLabels({each.key: each.flag for each in (*SETTINGS, *SHORTCUTS) if each.flag})

GATE = OptionLabels({**RUN, "gate": "--sequential", "cluster_key": "--set env.cluster_key"})

EVAL = OptionLabels({
    "num_examples": "--limit",
    "rollouts_per_example": "--n",
    "api_base_url": "--base-url",
    LITERAL_KEY_VAR: "--api-key",
    BASELINE_KEY_VAR: "--baseline-api-key",
})  # fmt: skip

BASELINE = OptionLabels({
    **EVAL,
    "model": "--baseline-model",
    "api_base_url": "--baseline-base-url",
    "api_key": "--baseline-api-key",
    "api_key_var": "--baseline-api-key-var",
})  # fmt: skip

_SCORING = ("match_mode", "length_target", "score_output", "schema_mode", "timeout_ms")
_TASKS = {f"env.env_args.{name}": f"--{name.replace('_', '-')}" for name in _SCORING}

MULTI_FILE = OptionLabels({**_TASKS, **MODEL_LABELS})
"""Labels of `bench multi` for models of a file."""

MULTI = OptionLabels({**MULTI_FILE, "model": "-m", "api_base_url": "-b", "api_key_var": "-k", "api_key": "-k"})


def labels_of(argv: Sequence[str]) -> Labels:
    """Return how the command in a command line spells settings and options in its messages."""
    return {"eval": EVAL, "gate": GATE, "test": EVAL, "multi": MULTI}.get(next(iter(argv), ""), RUN)
