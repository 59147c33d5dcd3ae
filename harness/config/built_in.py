"""The environment that is built in, `agent-eval`: its name, what is known of it, and what is said of it where
environments are packages. Imports little, because the loader asks."""

from __future__ import annotations

import re

from harness.config.packages import FoundEnvironment

AGENT_EVAL = "agent-eval"
"""The environment that is built in: an agent over the rows of a file."""

FOUND_AGENT_EVAL = FoundEnvironment(
    "harness.agents.environment",
    defaults={"num_examples": -1, "rollouts_per_example": 1},
    defaults_source=f"{AGENT_EVAL} [built-in]",
)
"""What is known of it. The whole dataset once, as `bench eval` does: the rows are the user's own."""

BUILT_IN = (
    f"{AGENT_EVAL} is built in, an agent over the rows of a file: `bench eval -m MODULE:AGENT -d FILE --eval-fn "
    "MODULE:FUNCTION --model MODEL` evaluates one, and with --dry-run shows and checks it"
)
"""What is said of it where environments are packages."""


def is_built_in(name: str) -> bool:
    """Whether a name without a version, however it is spelled, is the built-in environment's: a package of that name is
    somebody else's, and must never pass for it."""
    return re.sub(r"[-_.]+", "-", name.strip().lower()) == AGENT_EVAL
