"""Ray, imported when it is first needed: that takes seconds, and it is an extra."""

from __future__ import annotations

import importlib
from typing import Any

from harness.core.errors import ConfigError


def part(module: str = "ray") -> Any:
    """Import Ray, or one of its modules.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the executor ray needs {error.name or 'ray'}, which is not installed",
            remedy="run: pip install 'bench-harness[ray]'",
        ) from error
