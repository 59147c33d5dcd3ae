"""Sandbox configuration of classic packages, which were written for a provider's remote sandboxes. Validates the
arguments, refuses those that local sandboxes cannot fulfil, and derives the limits of a local sandbox."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from harness.core.errors import EnvironmentFault
from harness.plugins.classic.records import Record
from harness.sandbox import Limits, MachineSpec
from harness.sandbox.find import find_container_engine

_log = logging.getLogger(__name__)

START_COMMAND = "tail -f /dev/null"
"""Default command that keeps a remote container running; has no effect in a local sandbox."""

MACHINE = (
    "sandbox_name", "docker_image", "start_command", "cpu_cores", "memory_gb", "disk_size_gb", "gpu_count",
    "timeout_minutes", "timeout_per_command_seconds", "environment_vars", "team_id", "advanced_configs",
)  # fmt: skip
"""The positional arguments of `vf.SandboxEnv`, in order."""

SERVICE = (
    "labels", "max_retries", "base_delay", "backoff_factor", "max_backoff_seconds", "jitter",
    "sandbox_client_max_workers", "sandbox_client_max_connections", "sandbox_client_max_keepalive_connections",
)  # fmt: skip
"""Arguments for the provider's API and billing; ignored, because no rollout can observe them."""

_PYTHON_IMAGE = re.compile(r"^(?:docker\.io/)?(?:library/)?python(?:[:@].*)?$")
_PLAIN_IMAGE = re.compile(r"^(?:docker\.io/)?(?:library/)?(?:debian|ubuntu)(?:[:@].*)?$")

_MB = 1024


class SandboxRequest(Record):
    """Configuration of a rollout's sandbox, as returned by `get_sandbox_request`, which may change it for a row."""

    declared = ("environment_vars", "team_id", "advanced_configs", "labels")
    defaults: ClassVar[Mapping[str, object]] = {
        "name": "sandbox-env", "docker_image": "python:3.11-slim", "start_command": START_COMMAND, "cpu_cores": 1,
        "memory_gb": 2, "disk_size_gb": 5, "gpu_count": 0, "timeout_minutes": 60,
    }  # fmt: skip


def request_of(arguments: Mapping[str, Any]) -> SandboxRequest:
    """Create the sandbox configuration from the arguments of the environment's constructor."""
    known = (*SandboxRequest.declared, *SandboxRequest.defaults)
    names = {"sandbox_name": "name", **{name: name for name in known if name != "name"}}
    return SandboxRequest({names[name]: value for name, value in arguments.items() if name in names})


def needs_container(request: Any) -> bool:
    """Return whether the programs of this machine cannot stand in for those of the image."""
    image = str(request.docker_image)
    return not _PLAIN_IMAGE.match(image) and not _PYTHON_IMAGE.match(image)


def machine_of(request: Any, who: str) -> MachineSpec:
    """Convert a sandbox configuration with an image of its own to the description of a container.

    Raises:
        EnvironmentFault: see `limits_of`.
    """
    limits = limits_of(request, who)
    variables: Mapping[str, object] = request.environment_vars or {}
    return MachineSpec(
        image=str(request.docker_image), cpus=float(request.cpu_cores), memory_mb=limits.memory_mb,
        processes=limits.processes, env={name: str(value) for name, value in variables.items()},
    )  # fmt: skip


def limits_of(request: Any, who: str, only_python: bool = False) -> Limits:
    """Convert a sandbox configuration to the limits of a local sandbox.

    Args:
        request: A `SandboxRequest`, or an object with its attributes.
        who: The environment, for messages.
        only_python: Whether containers with an image of their own are refused.

    Raises:
        EnvironmentFault: the configuration requests an unsupported feature: a GPU, the programs of an image, or a
            provider's settings.
    """
    _check(request, who, only_python)
    asked = {name: getattr(request, name) for name in ("cpu_cores", "memory_gb", "disk_size_gb", "timeout_minutes")}
    for name, value in asked.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise EnvironmentFault(f"{who}: {name} must be a number above 0, not {value!r}")
    seconds = 60.0 * asked["timeout_minutes"]
    disk = max(1, round(asked["disk_size_gb"] * _MB))
    return Limits(
        wall_seconds=seconds, cpu_seconds=seconds * asked["cpu_cores"], processes=256,
        memory_mb=max(1, round(asked["memory_gb"] * _MB)), disk_mb=disk, file_mb=disk, output_bytes=4_000_000,
    )  # fmt: skip


def _check(request: Any, who: str, only_python: bool) -> None:
    image = str(request.docker_image)
    if request.gpu_count:
        raise EnvironmentFault(
            f"{who}: gpu_count={request.gpu_count!r} requests a GPU, which sandboxes of bench do not have. Pass "
            "gpu_count=0 to the environment if its code does not need one"
        )
    if request.advanced_configs is not None:
        raise EnvironmentFault(
            f"{who}: advanced_configs are settings of a remote provider, which are not supported; remove them"
        )
    if _PLAIN_IMAGE.match(image):
        _warn_once(who, image)
    elif needs_container(request) and (only_python or isinstance(find_container_engine(), str)):
        problem = "needs docker or podman, and neither works here"
        if only_python:
            problem = "is not supported: the interpreter is that of this machine"
        raise EnvironmentFault(
            f"{who}: docker_image={image!r} {problem}. If the programs of this machine are sufficient, pass "
            "docker_image='python:3.11-slim' to the environment"
        )


@cache
def _warn_once(who: str, image: str) -> None:
    _log.warning("%s: docker_image=%r is not used: commands find the programs of this machine", who, image)
