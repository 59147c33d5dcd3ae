"""`vf.SandboxEnv` and `vf.PythonEnv`. Owns the refusal: they create machines at one provider through its paid
service and its own client library, and what authors do with those (upload files, run background jobs) has no other
home. A class that derives from them can be imported; what cannot be had is an environment."""

from __future__ import annotations

from typing import Any

from harness.compat.verifiers.tool_env import StatefulToolEnv
from harness.errors import EnvironmentFault


class SandboxEnv(StatefulToolEnv):
    """Not offered.

    Raises:
        EnvironmentFault: always; says what to use instead.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kind = next(base.__name__ for base in type(self).__mro__ if base.__module__ == __name__)
        raise EnvironmentFault(
            f"vf.{kind} is not offered here ({type(self).__name__}): it rents a remote machine of one provider for "
            "every rollout. Write the tool with harness.sandbox (bubblewrap, docker or podman on this machine; see the "
            "catalogue's math-python), or install verifiers<=0.3, which bench hosts"
        )


class PythonEnv(SandboxEnv):
    """Not offered; see `SandboxEnv`."""
