"""The agent of a task: its rights, its limits and its end; the reference solution; agents of `bench eval`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harbor_tasks import GOOD, bash, call, load, make_task, play, told

from harness.core.errors import ConfigError, EnvironmentFault, LimitReached
from harness.core.records import Example
from harness.plugins.harbor.environment import HarborEnv

USERS = """workdir = "/srv"
env = { COLOUR = "red", HOST = "${BENCH_TEST_HOST}", OTHER = "${BENCH_TEST_NONE:-other}" }

[agent]
user = "games"

[verifier]
user = 13
env = { SECRET = "only for tests" }

[solution]
env = { COLOUR = "blue" }
"""

SHOW = 'id -u; pwd; echo "$COLOUR $HOST $OTHER [$SECRET]"'


def test_agent_tests_and_solution_have_their_user_their_variables_and_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_TEST_HOST", "from here")
    files = {"solution/solve.sh": f"{SHOW}\nexit 4\n"}  # without a first line that names a shell
    folder = make_task(tmp_path, test=f"{SHOW}\necho 1 >/logs/verifier/reward.txt", toml=USERS, files=files)
    with pytest.raises(ConfigError, match=r"task.toml: environment.env.HOST needs the variable BENCH_TEST_HOST"):
        load(folder)
    env = load(folder, pass_env=["BENCH_TEST_HOST"])
    shown = [
        bash(f"{SHOW}; touch /etc/x 2>&1; cat /etc/shadow"),
        call("edit", command="create", path="/etc/x", file_text="x"),
        call("edit", command="view", path="/etc/shadow"),
        call("edit", command="create", path="/tmp/new/x", file_text="text"),
        bash("cat /tmp/new/x; stat -c %U /tmp/new/x"),
        call("play_solution", hash="0" * 32),
        call("submit"),
        bash("never"),
    ]
    state = play(env, *shown)
    first, *rest = told(state)
    assert first.startswith("5\n/srv\nred from here other []\ntouch: cannot touch '/etc/x': Permission denied")
    assert "cannot be written" in rest[0] and "/etc/shadow is not a file that the user may read" in rest[1]
    assert rest[2:4] == ["/tmp/new/x has been written", "textgames"]
    assert "play_solution" in rest[4] and rest[5:] == ["submitted"]
    assert state["stop_condition"] == "submitted"
    assert state["verifier_output"] == "13\n/srv\nred from here other [only for tests]\n"
    assert state["reward"] == 1.0
    with pytest.raises(EnvironmentFault, match="the task a-task has no solution"):  # and the others go on
        load(make_task(tmp_path / "other")).reference_reply(_example(env), [])
    solved = play(env, env.reference_reply(_example(env), [{"role": "user", "content": "x"}]), model="reference/oracle")
    assert told(solved) == ["solution/solve.sh ended with exit code 4"]
    assert solved["solution_output"] == "5\n/srv\nblue from here other []\n"


def _example(env: HarborEnv) -> Example:
    row = env.row(0)
    return Example("k", row.example_id, row.prompt, info=row.info)


def test_an_agent_whose_time_is_up_is_stopped_and_scored(tmp_path: Path) -> None:
    test = "ls /proc | grep -q '^[0-9]*$'; cat /tmp/seen >/logs/verifier/reward.txt"
    env = load(make_task(tmp_path, test=test, toml="\n[agent]\ntimeout_sec = 3\n"))
    state = play(env, bash("echo 0.5 >/tmp/seen; sleep 100; echo 1 >/tmp/seen"))
    assert (state["stop_condition"], state["reward"]) == ("agent_timeout", 0.5)


def test_a_limit_of_the_rollout_ends_the_agent_and_the_tests_run(tmp_path: Path) -> None:
    env = load(make_task(tmp_path, test=GOOD), max_turns=1)
    state = play(env, bash("true"))
    assert (state["stop_condition"], state["reward"]) == ("max_turns_reached", 1.0)
    with pytest.raises(LimitReached):
        play(env, LimitReached("no more", reason="token_limit"))


AGENT = """
from harness.eval import RolloutAgentLoop


class Shell(RolloutAgentLoop):
    name = "shell"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        messages = list(ctx.request.messages)
        reply = await ctx.chat(messages)
        messages.append(reply.message)
        done = await ctx.machine.exec(["sh", "-c", reply.content])
        messages.append({"role": "user", "content": done.stdout + str(done.exit_code)})
        return ctx.complete(messages)
"""


def test_an_agent_of_bench_eval_works_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shell_agent.py").write_text(AGENT)
    folder = make_task(tmp_path, test="cat /tmp/answer >/logs/verifier/reward.txt", toml='\n[agent]\nuser = "games"\n')
    env = load(folder, agent="shell_agent:Shell")
    state = play(env, "echo 1 >/tmp/answer; id -un")
    assert state["completion"][-1]["content"] == "games\n0"
    assert state["reward"] == 1.0
    assert "agent_source" in env.fingerprint
    (folder / "task.toml").write_text((folder / "task.toml").read_text() + "timeout_sec = 3\n")
    state = play(load(folder, agent="shell_agent:Shell"), "echo 0.5 >/tmp/answer; sleep 100")
    assert (state["stop_condition"], state["reward"]) == ("agent_timeout", 0.5)
    assert state["completion"][-1]["content"] == "echo 0.5 >/tmp/answer; sleep 100"
    [message] = env.row(0).prompt
    assert message["content"] == "Do it.\n"  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.slow
def test_the_logs_of_a_rollout_are_kept_if_there_is_a_folder_for_them(tmp_path: Path) -> None:
    env = load(make_task(tmp_path, test=f"echo seen; {GOOD}"), logs=str(tmp_path / "kept"))
    play(env, bash("echo mine >/logs/agent/notes"))
    [folder] = (tmp_path / "kept" / "a-task").iterdir()
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {"agent/notes": "mine\n", "verifier/reward.txt": "1\n", "verifier/test-stdout.txt": "seen\n"}
    assert json.dumps(sorted(env.neutral_args)) == '["containers", "logs"]'
