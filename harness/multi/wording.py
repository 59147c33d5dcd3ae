"""Translation of error messages of settings and engine for authors of models and callers of this API: names of fields
and arguments replace those of command-line options."""

from __future__ import annotations

import re

_OF_A_MODEL = (
    (r"pass --api-key", "give the model an apiKey"),
    (r"with --base-url", "as baseUrl"),
    (r"with --model", "as modelId"),
    (r"--api-key-var", "apiKeyVar"),
    (r"--base-url", "baseUrl"),
    (r"--model", "modelId"),
    (r"name another variable with -k, ask another endpoint with -b", "name another variable as apiKeyVar"),
    (r"with -k", "as apiKeyVar"),
    (r"with -b", "as baseUrl"),
    (r"`-m reference/oracle`", "the model reference/oracle"),
)
_OF_A_CALL = (
    (r"without --resume", "without resume"),
    (r"--resume: ", "resume: "),
    (r"--resume needs", "resume needs"),
    (r"--no-save keeps none", "without output_dir there is none"),
)


def of_a_model(words: str) -> str:
    """Translate a message about a model to the names of a model's fields."""
    return _translated(words, _OF_A_MODEL)


def of_a_call(words: str) -> str:
    """Translate a message about an evaluation to the argument names of `evaluate`."""
    return _translated(words, (*_OF_A_CALL, *_OF_A_MODEL))


def _translated(words: str, table: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in table:
        words = re.sub(pattern, replacement, words)
    return words
