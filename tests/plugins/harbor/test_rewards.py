"""The tests of a task: how their reward is read, and that tests that break leave the rollout without a score."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bench_command import Bench
from harbor_tasks import IMAGES, bash, load, make_task, play
from tables import for_each_row

from harness.plugins.harbor.verifier import rewards_of
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

DOCUMENTS = [
    (b'{"reward": 0.5, "speed": 2}', b"1", (0.5, {"speed": 2.0})),
    (b'{"accuracy": 0.25}', None, (0.25, {})),
    (b'{"a": 1, "b": 2}', b" 0.75\n", (0.75, {"a": 1.0, "b": 2.0})),
    (b'{"reward": 1, "passed": true, "name": "x", "parts": [1]}', None, (1.0, {})),
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


TESTS = {
    "fails-with-reward": ("echo 0.25 >/logs/verifier/reward.txt; echo broken; exit 3", 0.25),
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
    assert "broken" in bench("runs", "show", str(folder), "--example", "fails-with-reward").out
    again = bench("rescore", str(folder))
    assert again.code == 0, again.err
    assert json.loads((folder / "summary.json").read_text())["scored"] == 3
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
