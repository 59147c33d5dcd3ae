"""The tasks that are part of bench, images that are built, and `bench env check` of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_command import Bench
from containers import IMAGE, need_podman
from harbor_tasks import GOOD, bash, load, make_task, play

from harness.core.errors import EnvironmentFault

OWN = ["count-errors", "fix-backup", "merge-tables", "repair-permissions", "roman-numerals"]
ARGUMENTS = {"sandbox": "podman", "images": {"debian:bookworm": IMAGE}, "containers": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "reward"), [("oracle", 1.0), ("null", 0.0)])
def test_the_solution_of_each_own_task_gets_1_and_nothing_gets_0(
    policy: str, reward: float, bench: Bench, here: Path
) -> None:
    need_podman()
    done = bench("run", "harbor", "-a", json.dumps(ARGUMENTS), "-m", f"reference/{policy}", "-o", "out", "--json")
    assert done.code == 0, done.err
    [folder] = [path.parent for path in (here / "out").rglob("journal.jsonl")]
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines if line["type"] == "scored"] == [reward] * 5
    assert sorted(line["example_id"] for line in lines if line["type"] == "example") == OWN


def test_a_single_own_task_is_found_by_its_name(bench: Bench, here: Path) -> None:
    need_podman()
    wrong = bench("run", "harbor/fix-backups", "-m", "reference/null", "-o", "out")
    assert wrong.code == 2 and "there is no task 'fix-backups'; did you mean \"fix-backup\"?" in wrong.out + wrong.err
    twice = bench("run", "harbor/fix-backup", "-a", '{"tasks": ["x"]}', "-m", "reference/null", "-o", "out")
    assert twice.code == 2 and "harbor/fix-backup is a single task" in twice.out + twice.err
    listed = json.loads(bench("env", "list", "--json").out)["environments"]
    assert [(each["status"], each["defaults"]) for each in listed if each["name"] == "harbor"] == [
        ("bundled", {"num_examples": -1, "rollouts_per_example": 1})
    ]


@pytest.mark.slow
def test_a_check_says_of_each_task_what_its_solution_and_doing_nothing_get(
    tmp_path: Path, bench: Bench, here: Path
) -> None:
    need_podman()
    test = '[ -e /tmp/solved ] && echo 1 >"$0.r" || echo 0 >"$0.r"; cp "$0.r" /logs/verifier/reward.txt'
    solve = {"solution/solve.sh": "#!/bin/sh\ntouch /tmp/solved\n"}
    make_task(tmp_path / "tasks", "fine", test, files=solve)
    make_task(tmp_path / "tasks", "solved-at-once", GOOD, files=solve)
    make_task(tmp_path / "tasks", "wrong-solution", test, files={"solution/solve.sh": "#!/bin/sh\nexit 1\n"})
    arguments = {"path": "tasks", "sandbox": "podman", "images": {"example.org/no/such:1": IMAGE}, "containers": 2}
    (here / "tasks").symlink_to(tmp_path / "tasks")
    done = bench("env", "check", "harbor", "-a", json.dumps(arguments))
    words = " ".join(done.out.split())
    assert done.code == 1
    assert "not the best reward, 1, in 1 of 3 rollouts: example wrong-solution has 0" in words
    assert "not the worst reward, 0, in 1 of 3 rollouts: example solved-at-once has 1" in words


def test_an_image_that_cannot_be_built_fails_its_rollouts(tmp_path: Path) -> None:
    dockerfile = {"environment/Dockerfile": "FROM example.org/no/such:1\nRUN exit 7\n", "task.toml": ""}
    env = load(make_task(tmp_path, files=dockerfile))
    with pytest.raises(EnvironmentFault, match=r"cannot build the image of .*environment/Dockerfile"):
        play(env)


def test_the_entry_point_of_an_image_runs_beside_the_agent(tmp_path: Path) -> None:
    dockerfile = f'FROM {IMAGE}\nCOPY start /start\nENV A=1\nENTRYPOINT ["sh", "/start"]\n'
    files = {"environment/Dockerfile": dockerfile, "environment/start": 'echo "$A $#" >/started; exec "$@"\n'}
    test = "cat /started /proc/[0-9]*/cmdline | tr '\\0' ' '; echo 1 >/logs/verifier/reward.txt"
    folder = make_task(
        tmp_path, test=test, files={**files, "task.toml": '[environment]\nnetwork_mode = "no-network"\n'}
    )
    env = load(folder)
    for _ in range(2):
        output = play(env, bash("until [ -e /started ]; do sleep 0.1; done"))["verifier_output"]
        assert output.startswith("1 3\n") and "sleep infinity" in output


def test_a_storage_limit_that_cannot_be_kept_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_task(tmp_path, toml="storage_mb = 100\ncpus = 64\n")
    env = load(folder)
    assert [play(env)["reward"], play(env)["reward"]] == [1.0, 1.0]
    said = [record for record in caplog.records if "storage_mb of the tasks is not kept" in record.getMessage()]
    assert len(said) in (0, 1)  # none where the storage of the engine can limit disk space
    caplog.clear()
    assert play(load(folder, limit_storage=False))["reward"] == 1.0
    assert "storage" not in caplog.text
