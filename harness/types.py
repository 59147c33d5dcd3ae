"""The messages and protocols of `harness.core.types`, under the documented path."""

from harness.core.types import *  # noqa: F403
