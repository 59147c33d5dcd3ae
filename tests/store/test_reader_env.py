"""The environment of the readers: made by one process alone, whole or not at all, and skipped for one reason only."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import reader_env
from reader_env import Unreachable, environment


class Maker:
    """Makes an environment of one file, or does not."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.made = 0

    def __call__(self, home: Path) -> None:
        assert not home.exists()
        (home / "bin").mkdir(parents=True)
        self.made += 1
        if self.error is not None:
            raise self.error
        (home / "bin" / "python").touch()


def test_two_at_once_make_one(tmp_path: Path) -> None:
    make, found = Maker(), list[object]()
    threads = [threading.Thread(target=lambda: found.append(environment(tmp_path, "a", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (make.made, found) == (1, [tmp_path / "a" / "bin" / "python"] * 4)


def test_what_was_left_half_made_is_made_anew(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="killed"):
        environment(tmp_path, "a", Maker(RuntimeError("killed")))
    make = Maker()
    python = environment(tmp_path, "a", make)
    assert isinstance(python, Path)
    python.unlink()  # whoever tidies temporary folders takes files as they grow old
    assert environment(tmp_path, "a", make) == python
    assert (make.made, python.exists()) == (2, True)


def test_no_index_is_asked_for_again_after_a_while(tmp_path: Path) -> None:
    away = Maker(Unreachable("connection refused"))
    words = "no package index answers, so the readers of exports are not here: connection refused"
    assert [environment(tmp_path, "a", away) for _ in range(3)] == [words] * 3
    assert away.made == 1
    long_ago = time.time() - 2 * reader_env.MEMORY
    os.utime(tmp_path / "a.missing", (long_ago, long_ago))
    back = Maker()
    assert environment(tmp_path, "a", back) == tmp_path / "a" / "bin" / "python"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.ready", "lock"]


@pytest.mark.parametrize("spoil", ["open", "link"])
def test_a_folder_that_others_can_write_to_is_refused(spoil: str, tmp_path: Path) -> None:
    """What lies there is run."""
    folder = tmp_path / f"bench-readers-{os.getuid()}"
    if spoil == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to("elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import reader_env; print(reader_env.reader_python())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(reader_env.__file__).parent)],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{folder} is open to others, or somebody else's; remove it" in done.stderr
