"""The Dockerfile: its image runs `bench`, as an ordinary user and without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = "docker.io/library/debian:bookworm"
PODMAN = shutil.which("podman")


def has_base() -> bool:
    return PODMAN is not None and subprocess.run([PODMAN, "image", "exists", BASE], check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_base() and "BENCH_REQUIRE_CONTAINERS" not in os.environ,
        reason=f"podman or its image {BASE} with python3-venv is not installed",
    ),
]


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    assert PODMAN is not None
    done = subprocess.run([PODMAN, *arguments], capture_output=True, text=True, check=False, timeout=900)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of the repository's Dockerfile, built without a network from wheels."""
    context = tmp_path_factory.mktemp("context")
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "outputs", "tests", "benchmarks")
    shutil.copytree(ROOT, context / "src", ignore=ignored)
    wheels = context / "src" / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(wheels), "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*build, str(ROOT), "hatchling"], check=True, timeout=900)
    for wheel in wheels.glob("bench_harness-*.whl"):
        wheel.unlink()  # the image builds its own
    name = f"localhost/bench-image-test-{context.parent.name}"
    podman(
        "build", "--network=none", "--build-arg", f"BASE={BASE}", "--build-arg",
        "PIP_ARGS=--no-index --find-links /src/wheels", "-t", name, str(context / "src"),
    )  # fmt: skip
    yield name
    podman("rmi", "--force", name)


def test_the_image_runs_bench(image: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    run = ["run", "--rm", "--network=none", "-v", f"{tmp_path}:/work", image]
    listed = json.loads(podman(*run, "env", "list", "--json").stdout)["environments"]
    assert [each["status"] for each in listed] == ["bundled"] * 11
    done = podman(*run, "run", "wordle", "-n", "2", "-r", "1", "-m", "reference/oracle", "--json")
    [result] = json.loads(done.stdout)["runs"]
    assert (result["state"], result["summary"]["scored"]) == ("done", 2)
    assert (tmp_path / result["path"] / "summary.json").is_file()
    assert podman(*run, "run", "nothing", check=False).returncode == 2
    whoami = podman("run", "--rm", "--network=none", "--entrypoint", "id", image, "-un").stdout.strip()
    assert whoami == "bench"
