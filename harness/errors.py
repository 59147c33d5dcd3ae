"""The exceptions of `harness.core.errors`, under the documented path."""

from harness.core.errors import *  # noqa: F403
