"""Hosts environments of a real `verifiers` package that still has the classic API (0.1.8 to 0.3): their own rollout and
their own rubric run under our engine, gates, journal and dataset. Owns the recognition of such an object; imports
nothing of theirs, so it works where no such package is installed."""

from __future__ import annotations

import inspect
from typing import Any

from harness.compat.hosted.dialect import dialect_of, is_theirs, root_of
from harness.compat.hosted.environment import HostedEnvironment
from harness.envs.environment import Environment
from harness.errors import EnvironmentFault

__all__ = ["HostedEnvironment", "host"]


def host(obj: Any) -> Environment | None:
    """The object of a classic package as an environment; None if it is nothing of `verifiers`.

    Args:
        obj: What a `load_environment` returned.

    Raises:
        EnvironmentFault: it is of `verifiers`, but not of the API that can be hosted.
    """
    if not any(is_theirs(kind) for kind in type(obj).__mro__):
        return None
    root = root_of(obj)
    if root is None:
        raise EnvironmentFault(
            f"{type(obj).__name__} is built on the verifiers package's newer API (verifiers.v1), which cannot be run "
            "here; bench runs environments of the classic API (vf.Environment of verifiers 0.1.8 to 0.3)"
        )
    if "input" not in inspect.signature(obj.rollout).parameters:
        raise EnvironmentFault(
            f"{type(obj).__name__} is an environment of a verifiers release before 0.1.8, whose rollout() goes another "
            "way; upgrade the package (pip install 'verifiers==0.1.9.post3'), or uninstall it: bench answers "
            "`import verifiers` itself where it is absent"
        )
    return HostedEnvironment(obj, dialect_of(root))
