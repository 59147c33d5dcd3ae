"""A real container engine for tests: podman with the image `debian:bookworm`.

Where there is none, a test that needs one is skipped on a developer's machine and fails where
`BENCH_REQUIRE_CONTAINERS` is set, as it is in CI. No test pulls an image, and none touches a container that it has not
started."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest

IMAGE = "docker.io/library/debian:bookworm"
PODMAN = shutil.which("podman") or "podman"


@cache
def _missing() -> str:
    if shutil.which("podman") is None:
        return "podman is not installed: apt-get install podman"
    if podman("image", "exists", IMAGE, check=False).returncode:
        return f"podman has no image {IMAGE} with python3: podman pull debian:bookworm, or make one with debootstrap"
    return ""


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run podman to its end."""
    return subprocess.run([PODMAN, *arguments], capture_output=True, text=True, check=check, timeout=300)


def need_podman() -> None:
    """End the test that calls it if there is no engine."""
    if missing := _missing():
        if os.environ.get("BENCH_REQUIRE_CONTAINERS"):
            pytest.fail(missing)
        pytest.skip(missing)


def exists(container: str) -> bool:
    """Whether there is a container of this name, running or not."""
    return podman("container", "exists", container, check=False).returncode == 0
