"""Where results go: on this machine's real file systems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.cli.doctor.disk import check_disk, file_system


def test_a_folder_that_is_there_or_can_be_made_is_well_and_left_as_it_was(tmp_path: Path) -> None:
    for folder, words in (
        (tmp_path, "is there"),
        (tmp_path / "a/b", f"does not exist yet, and can be created in {tmp_path}"),
    ):
        found = check_disk(folder)
        assert [each.status for each in found if each.status == "problem"] == []
        assert any(each.says.startswith(words) and "a sync takes" in each.says for each in found)
        assert any("iB free" in each.says for each in found)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("")
    [found] = check_disk(tmp_path / "outputs")
    assert (found.status, found.fix) == ("problem", "choose another output folder with -o")
    assert "is a file" in found.says
    [below] = check_disk(tmp_path / "outputs" / "more")
    assert below.status == "problem"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_is_a_problem(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        [found] = check_disk(tmp_path / "outputs")
    finally:
        tmp_path.chmod(0o700)
    assert found.status == "problem"
    assert "EACCES" in found.says


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="Linux has a file system that takes no files")
def test_a_file_system_that_takes_no_files_is_a_problem() -> None:
    [found] = check_disk(Path("/proc/self/outputs"))
    assert found.status == "problem"
    assert "cannot write in" in found.says


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="Linux has a file system in memory there")
def test_a_file_system_in_memory_is_noted() -> None:
    found = [each for each in check_disk(Path("/dev/shm")) if each.status == "note"]
    assert any("lost at a restart" in each.says for each in found)


def test_the_file_system_is_that_of_the_nearest_mount_and_of_two_the_later(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    inside = tmp_path / "a b" / "c"
    inside.mkdir(parents=True)
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(
        f"none / overlay rw 0 0\nx {escaped} nfs rw 0 0\ny {escaped} nfs4 rw 0 0\nbroken\nz {inside}x ext4\n"
    )
    assert file_system(inside, mounts) == "nfs4"
    assert file_system(tmp_path, mounts) == "overlay"
    assert file_system(tmp_path, tmp_path / "nothing") == ""
