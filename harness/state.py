"""The state of a rollout of `harness.core.state`, under the documented path."""

from harness.core.state import *  # noqa: F403
