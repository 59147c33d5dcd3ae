"""The records of `harness.core.records`, under the documented path."""

from harness.core.records import *  # noqa: F403
