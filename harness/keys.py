"""The content keys of `harness.core.keys`, under the documented path."""

from harness.core.keys import *  # noqa: F403
