"""The tests of a task: how their reward is read, and that tests that break leave the rollout without a score."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import nursery
import pytest
from bench_command import Bench
from containers import IMAGE, PODMAN, need_podman
from harbor_tasks import IMAGES, bash, load, make_task, play
from tables import for_each_row

from harness.core.errors import EnvironmentFault
from harness.plugins.harbor.verifier import rewards_of
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

DOCUMENTS = [
    (b'{"reward": 0.5, "speed": 2}', b"1", (0.5, {"speed": 2.0})),
    (b'{"accuracy": 0.25}', None, (0.25, {})),
    (b'{"a": 1, "b": 2}', b" 0.75\n", (0.75, {"a": 1.0, "b": 2.0})),
    (b'{"reward": 1, "passed": true, "name": "x", "parts": [1]}', None, (1.0, {})),
    (b'{"reward": 1, "\\ud800": 2}', None, (1.0, {"?": 2.0})),  # which the journal could not hold
    (None, b"-3e-2", (-0.03, {})),
    (None, None, "wrote neither /logs/verifier/reward.txt nor"),
    (None, b" \n", "reward.txt is empty"),
    (None, b"NaN", "reward.txt is not a number: 'NaN'"),
    (None, b"inf", "not a number"),
    (None, b"passed \xff", "not a number"),
    (b"", None, "reward.json is empty"),
    (b'{"reward": ', b"1", "reward.json is not JSON"),
    (b"[" * 100_000, None, "reward.json is not JSON"),
    (b"[1]", None, "reward.json is not an object"),
    (b'{"reward": NaN}', None, "'reward' is not a finite number"),
    (b'{"reward": 1e999}', None, "not a finite number"),
    (b'{"reward": 1' + b"0" * 400 + b"}", None, "not a finite number"),
    (b'{"reward": "1"}', None, "has no `reward`.*no numbers"),
    (b'{"a": 1, "b": 2}', None, "has no `reward`, and which of its values is the reward is unclear: a, b"),
]


@for_each_row(("document", "text", "wanted"), DOCUMENTS)
def test_a_reward_is_read_or_said_to_be_missing(document: bytes | None, text: bytes | None, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert rewards_of(document, text) == wanted
    else:
        with pytest.raises(ValueError, match=wanted):
            rewards_of(document, text)


OUTPUT = "/logs/verifier/test-stdout.txt"
REWARD = "/logs/verifier/reward.txt"

TESTS = {
    "fails-with-reward": ("echo 0.25 >/logs/verifier/reward.txt; echo broken; exit 3", 0.25),
    "fifo": (f"mv /logs/verifier/* /tmp; mkfifo {OUTPUT}; (echo late >{OUTPUT}) 2>/dev/null & echo 1 >{REWARD}", 1.0),
    "flood": ("yes | head -c 40000000; echo end; echo 1 >/logs/verifier/reward.txt", 1.0),
    "hangs": ("echo 1 >/logs/verifier/reward.txt; sleep 60 & sleep 60", "the tests took longer than 2 s"),
    "metrics": ("echo '{\"reward\": 0.5, \"a b/c\": 3}' >/logs/verifier/reward.json", 0.5),
    "no-program": ("exec /no/such/program", r"wrote neither.*exit code 127"),
    "no-reward": ("exit 1", r"wrote neither.*\(test.sh ended with exit code 1\)"),
    "not-a-file": ("mkdir /logs/verifier/reward.txt", "wrote neither"),
    "too-large": ("head -c 2000000 /dev/zero >/logs/verifier/reward.txt", "more than 1,048,576"),
}  # fmt: skip


@pytest.mark.slow
def test_tests_that_break_leave_a_rollout_unscored_and_never_give_it_0(
    tmp_path: Path, bench: Bench, here: Path
) -> None:
    for name, (test, _) in TESTS.items():
        make_task(tmp_path / "tasks", name, test, "\n[verifier]\ntimeout_sec = 2\n" if name == "hangs" else "")
    arguments = {"path": str(tmp_path / "tasks"), "sandbox": "podman", "images": IMAGES, "containers": 2}
    done = bench("run", "harbor", "-a", json.dumps(arguments), "-m", "reference/null", "-o", "out")
    assert done.code == 0, done.err
    [folder] = [path.parent for path in (here / "out" / "evals").glob("*/*/journal.jsonl")]
    found = {str(each.example.example_id): each for each in outcomes(read_journal(RunDir(folder)))}
    assert sorted(found) == sorted(TESTS)
    for name, (_, wanted) in TESTS.items():
        assert found[name].reward == (wanted if isinstance(wanted, float) else None), name
        assert isinstance(wanted, float) or re.search(wanted, found[name].error or ""), (name, found[name].error)
    metrics = found["metrics"].score
    assert metrics is not None and metrics.metrics["verifier_a_b_c"] == 3.0
    output = found["flood"].state["verifier_output"]
    assert output.startswith("[the output was longer") and output.endswith("y\nend\n") and len(output) < 40_000
    assert found["fails-with-reward"].state["verifier"]["exit_code"] == 3
    assert found["fifo"].state["verifier_output"] == ""
    assert "broken" in bench("runs", "show", str(folder), "--example", "fails-with-reward").out
    again = bench("rescore", str(folder))
    assert again.code == 0, again.err
    assert json.loads((folder / "summary.json").read_text())["scored"] == 4
    (tmp_path / "tasks" / "flood" / "tests" / "test.sh").write_text("exit 1\n")
    changed = bench("run", "harbor", "-a", json.dumps(arguments), "-m", "reference/null", "-o", "out", "--resume")
    assert changed.code == 2 and "tasks" in changed.err


def test_rewards_and_tests_that_the_agent_leaves_do_not_count(tmp_path: Path) -> None:
    test = "ls -A /tests /logs/verifier; cat $TEST_DIR/wanted; [ ! -e /tests/planted ]"
    env = load(make_task(tmp_path, test=test, files={"tests/wanted": "hidden\n"}))
    planted = "ls -d /tests; mkdir /tests; echo x >/tests/planted; rm -r /logs; ln -s /etc /logs; mkdir /etc/verifier"
    state = play(env, bash(f"{planted}; echo 1 >/etc/verifier/reward.txt; cat /tests/*"))
    assert "hidden" not in json.dumps(state["completion"])
    assert state["verifier_output"].splitlines() == [
        "/logs/verifier:", "test-stdout.txt", "", "/tests:", "test.sh", "wanted", "hidden",
    ]  # fmt: skip
    assert state["reward"] is None and "wrote neither" in state["verifier"]["problem"]


WAITS = "mkdir /tmp/d; mkfifo /tmp/d/go /tmp/d/done"
FORGES = (
    "(cat /tmp/d/go; echo '{\"reward\": 1}' >/logs/verifier/reward.json; echo tried >/tmp/d/done) >/dev/null 2>&1 &"
)
LETS = "echo go >/tmp/d/go; cat /tmp/d/done; echo 0 >/logs/verifier/reward.txt"


def test_an_agent_with_a_user_of_its_own_leaves_no_program_that_writes_rewards(tmp_path: Path) -> None:
    for users in ('[agent]\nuser = "games"\n', '[agent]\nuser = "games"\n[verifier]\nuser = 13\n'):
        env = load(make_task(tmp_path, test=LETS, toml=f"\n{users}"))
        state = play(env, bash(f"umask 0; {WAITS}; {FORGES}"))
        assert state["verifier_output"] == "tried\n"
        assert state["reward"] == 0.0


def test_a_script_without_a_first_line_runs_in_bash(tmp_path: Path) -> None:
    script = 'words=(a b); echo "${#words[@]}" >/logs/verifier/reward.txt\n'
    state = play(load(make_task(tmp_path, files={"tests/test.sh": script})))
    assert state["reward"] == 2.0


DESTROYS = bash("rm -f /bin/chmod /usr/bin/chmod")


def test_a_container_that_the_agent_has_destroyed_is_said_in_the_state_and_has_no_score(tmp_path: Path) -> None:
    env = load(make_task(tmp_path))
    for command in (DESTROYS, bash("ln -sf /usr/bin/yes /bin/chmod")):
        state = play(env, command)
        assert state["reward"] is None and state["machine_destroyed"]
        assert "the agent has left a container that cannot be prepared for the tests" in state["verifier"]["problem"]
    assert "machine_destroyed" not in play(env)


def test_a_container_without_dev_null_is_restarted_and_verified(tmp_path: Path) -> None:
    state = play(load(make_task(tmp_path)), bash("rm /dev/null"))
    assert (state["reward"], state["machine_restarts"]) == (1.0, 1)


def test_a_destroyed_container_is_found_also_if_a_limit_has_ended_the_agent(
    tmp_path: Path, bench: Bench, here: Path
) -> None:
    (here / "destroying_agent.py").write_text(DESTROYER)
    make_task(tmp_path / "tasks")
    arguments = {
        "path": str(tmp_path / "tasks"), "sandbox": "podman", "images": IMAGES, "agent": "destroying_agent:Destroyer",
    }  # fmt: skip
    need_podman()
    command = [
        "run",
        "harbor",
        "-a",
        json.dumps(arguments),
        "-m",
        "reference/echo",
        "-o",
        "out",
        "--message-limit",
        "1",
    ]
    done = bench(*command)
    assert done.code == 1 and "1 unscored" in done.err, done.err
    [folder] = [path.parent for path in (here / "out" / "evals").glob("*/*/journal.jsonl")]
    [found] = outcomes(read_journal(RunDir(folder)))
    assert (found.reward, found.base.stop_condition) == (None, "message_limit")  # pyright: ignore[reportAttributeAccessIssue]
    for query, count in {"state.machine_destroyed:true": 1, "state.machine_destroyed:false": 0}.items():
        shown = json.loads(bench("runs", "show", str(folder), "--where", query, "--json").out)
        assert len(shown["rollouts"]) == count


DESTROYER = """
from harness.eval import RolloutAgentLoop


class Destroyer(RolloutAgentLoop):
    name = "destroyer"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        await ctx.machine.exec(["rm", "-f", "/bin/chmod", "/usr/bin/chmod"])
        messages = list(ctx.request.messages)
        for _ in range(3):
            messages.append((await ctx.chat(messages)).message)
        return ctx.complete(messages)
"""


def test_tests_belong_to_root_and_can_be_read_also_if_the_image_has_another_user(tmp_path: Path) -> None:
    test = "id -un; stat -c '%U %a %n' $TEST_DIR/*; cat $TEST_DIR/data; echo 1 >/logs/verifier/reward.txt"
    dockerfile = f"FROM {IMAGE}\nUSER games\n"
    folder = make_task(tmp_path, test=test, files={"environment/Dockerfile": dockerfile, "tests/data": "x\n"})
    for file in (folder / "tests").iterdir():
        file.chmod(0o600)
    state = play(load(folder, build=True), bash("id -un"))
    assert state["verifier_output"] == "games\nroot 644 /tests/data\nroot 755 /tests/test.sh\nx\n"
    assert state["reward"] == 1.0


def test_root_runs_no_program_that_the_agent_has_put_into_the_path_of_the_image(tmp_path: Path) -> None:
    dockerfile = f"FROM {IMAGE}\nRUN mkdir -m 0777 /mine\nENV PATH=/mine:$PATH\n"
    test = "[ ! -e /root/taken ] && echo 1 >/logs/verifier/reward.txt"
    folder = make_task(
        tmp_path, test=test, toml='\n[agent]\nuser = "games"\n', files={"environment/Dockerfile": dockerfile}
    )
    trap = "printf '#!/bin/sh\\n: >/root/taken\\n' >/mine/rm; chmod +x /mine/rm; cd /mine"
    planted = bash(f"{trap}; for each in chmod chown ls mkdir tail; do cp rm $each; done")
    state = play(load(folder, build=True), planted)
    assert state["reward"] == 1.0, state["verifier"]


def test_mounts_of_the_image_are_emptied_before_the_tests(tmp_path: Path) -> None:
    dockerfile = f"FROM {IMAGE}\nVOLUME /tests /logs/verifier\n"
    test = "[ ! -e /tests/planted ] && [ ! -e /logs/verifier/reward.json ] && echo 0.5 >/logs/verifier/reward.txt"
    env = load(make_task(tmp_path, test=test, files={"environment/Dockerfile": dockerfile}), build=True)
    planted = "touch /tests/planted; echo '{\"reward\": 1}' >/logs/verifier/reward.json"
    assert play(env, bash(planted))["reward"] == 0.5


def test_an_image_that_cannot_be_prepared_is_said_before_the_agent_works(tmp_path: Path) -> None:
    dockerfile = {"environment/Dockerfile": f"FROM {IMAGE}\nRUN rm /bin/chmod\n"}
    env = load(make_task(tmp_path, files=dockerfile), build=True)
    with pytest.raises(EnvironmentFault, match=r"the container of a-task cannot be prepared: .*chmod"):
        play(env, "the agent is not asked")


def test_a_task_that_has_changed_since_the_run_began_is_not_scored(tmp_path: Path) -> None:
    folder = make_task(tmp_path)
    env = load(folder)
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\necho 0 >/logs/verifier/reward.txt\n")
    with pytest.raises(EnvironmentFault, match="files of the task have changed since the run began"):
        play(env)


AGENT = """
from pathlib import Path

from harness.eval import RolloutAgentLoop


class Careless(RolloutAgentLoop):
    name = "careless"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        reply = await ctx.chat(list(ctx.request.messages))
        Path("{flag}").touch()
        try:
            await ctx.machine.exec(["true"])
        except Exception as error:
            Path("{flag}.said").write_text(type(error).__name__)
        Path("{flag}").unlink()
        return ctx.complete([*ctx.request.messages, reply.message])
"""


def test_an_engine_that_fails_for_a_while_is_no_score_even_if_the_agent_catches_its_error(
    tmp_path: Path, bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_podman()
    flag, programs = tmp_path / "broken", tmp_path / "bin"
    programs.mkdir()
    (programs / "podman").write_text(f'#!/bin/sh\n[ ! -e "{flag}" ] || exit 125\nexec {PODMAN} "$@"\n')
    (programs / "podman").chmod(0o755)
    (here / "careless_agent.py").write_text(AGENT.replace("{flag}", str(flag)))
    make_task(tmp_path / "tasks", test="echo 0 >/logs/verifier/reward.txt")
    arguments = {
        "path": str(tmp_path / "tasks"), "sandbox": "podman", "images": IMAGES, "agent": "careless_agent:Careless",
    }  # fmt: skip
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["bench", "run", "harbor", "-a", json.dumps(arguments), "-m", "reference/echo", "-o", "out", "-q"]
    nursery.run(command, cwd=here, environ={**os.environ, **path})
    assert Path(f"{flag}.said").read_text() == "SandboxError"
    [folder] = [path.parent for path in (here / "out" / "evals").glob("*/*/journal.jsonl")]
    [found] = outcomes(read_journal(RunDir(folder)))
    assert found.reward is None
