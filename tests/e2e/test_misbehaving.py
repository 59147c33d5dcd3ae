"""Environments that misbehave inside this process: each is found out and named, with its line where it has one; others
come to their end, and stdout holds the result alone. The environments are the table in `support/misbehaving.py`;
many share a suite here, since none may harm another."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Done, Workshop, lines
from dying import at_work_in
from misbehaving import AT_EVERY_PLACE, FAULTS, HABITS, RETURNS, ROLLOUTS, TABLE, Misbehaving, source

LEAVES_BEHIND = ("starts_threads", "starts_threads_of_asyncio", "starts_tasks", "starts_children", "blocks")
"""Habits that are found out when everything else has ended."""

BATCHES: dict[str, Sequence[str]] = {
    **{f"every_place_{fault}": [name for name in AT_EVERY_PLACE if name.endswith(f"_{fault}")] for fault in FAULTS},
    "returns": list(RETURNS),
    "leaves_behind": LEAVES_BEHIND,
    "habits": [name for name in HABITS if name not in LEAVES_BEHIND],
}


@dataclass(frozen=True)
class Played:
    """One command with many runs, and `sums` among them."""

    done: Done
    shop: Workshop

    @property
    def by_name(self) -> dict[str, dict[str, Any]]:
        return {run["name"]: run for run in self.done.runs}

    def evidence(self, name: str) -> str:
        """What is said of one environment: in its run's note, its journal, and the lines on stderr that name it."""
        run = self.by_name[name]
        own = [
            line
            for line in self.done.err.splitlines()
            if name in line or "note:" in line or name in ("prints", "replaces_streams_loading")
        ]
        journal = (self.shop.cwd / run["path"] / "journal.jsonl").read_text() if run["path"] else ""
        return " ".join(f"{run['note']} {' '.join(own)} {journal}".replace('\\"', '"').split())


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Played]]:
    """Plays a batch, once; what its environments leave running is ended with the last test."""
    known: dict[str, Played] = {}

    def played(batch: str) -> Played:
        if batch not in known:
            shop = Workshop(tmp_path_factory.mktemp(batch))
            for name in BATCHES[batch]:
                shop.environment(name, TABLE[name].source)
            names = ",".join([*BATCHES[batch], "sums"])
            known[batch] = Played(shop.bench("run", names, *PLAYED), shop)
        return known[batch]

    yield played
    for each in known.values():
        for pid in at_work_in(each.shop.cwd):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


PLAYED = ("-m", "reference/oracle", "-n", "-1", "-r", "2", "--json")


def test_every_entry_of_the_table_is_played() -> None:
    assert sorted(name for names in BATCHES.values() for name in names) == sorted(TABLE)
    assert len(TABLE) == sum(map(len, (AT_EVERY_PLACE, RETURNS, HABITS)))


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES)
def test_each_is_found_out_and_named_and_the_others_finish(play: Callable[[str], Played], batch: str) -> None:
    played = play(batch)
    sums = played.by_name["sums"]
    assert (sums["state"], sums["note"], sums["summary"]["scored"]) == ("done", "", 48)
    assert sums["summary"]["reward"]["mean"] == 1.0
    assert played.done.code == max(TABLE[name].code for name in BATCHES[batch])
    assert "Traceback" not in played.done.err
    assert "Task was destroyed" not in played.done.err and "never retrieved" not in re.sub(
        r"WARNING harness.usercode.event_loop: .*", "", played.done.err
    )
    failed: list[AssertionError] = []
    for name in BATCHES[batch]:
        try:
            check_named(played, name)
        except AssertionError as error:
            error.add_note(name)
            failed.append(error)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(BATCHES[batch])} environments", failed)


def check_named(played: Played, name: str) -> None:
    """What is said of one environment of a batch, and what its run counts."""
    wanted = TABLE[name]
    run = played.by_name[name]
    said, summary = played.evidence(name), run["summary"]
    for words in wanted.said:
        assert words in said
    if wanted.line is not None:
        assert f"{name}.py:{wanted.line}" in said
    assert run["state"] == wanted.state, run["note"]
    if wanted.scored is None:
        assert summary is None
        return
    assert (summary["scored"], summary["unscored"]) == (wanted.scored, dict(wanted.unscored))
    assert summary["scored"] + sum(summary["unscored"].values()) == ROLLOUTS
    assert {metric: summary["metrics"][metric]["mean"] for metric in wanted.values} == dict(wanted.values)


@pytest.mark.slow
def test_what_goes_wrong_in_every_rollout_is_logged_once_and_counted(play: Callable[[str], Played]) -> None:
    lines = [line for line in play("every_place_raises").done.err.splitlines() if "cleanup_raises.py:" in line]
    lines = [line for line in lines if "environment: " in line]  # the table has it as its first error, too
    said = f"Odd @cleanup tidy raised RuntimeError: boom (in tidy, cleanup_raises.py:{TABLE['cleanup_raises'].line})"
    assert [line.partition("environment: ")[2] for line in lines] == [
        said,
        f"{said} (this error occurred {ROLLOUTS} times)",
    ]


@pytest.mark.parametrize("name", ["load_exits", "setup_exits", "teardown_exits", "cleanup_interrupts"])
def test_the_exit_code_is_that_of_its_run(shop: Workshop, name: str) -> None:
    wanted = TABLE[name]
    shop.environment(name, wanted.source)
    done = shop.bench("run", name, *PLAYED)
    assert done.code == wanted.code == (0 if name == "teardown_exits" else 1), done.err
    assert done.run["state"] == wanted.state


@pytest.fixture
def entry(shop: Workshop) -> Callable[[str], Misbehaving]:
    """Puts an environment of the table where commands find it."""

    def put(name: str) -> Misbehaving:
        shop.environment(name, TABLE[name].source)
        return TABLE[name]

    return put


@pytest.mark.parametrize("name", ["load_exits", "top_exits", "init_interrupts", "builder_exits", "setup_exits"])
def test_a_check_says_what_ends_the_process(shop: Workshop, entry: Callable[[str], Misbehaving], name: str) -> None:
    wanted = entry(name)
    done = shop.bench("env", "check", name, "--json")
    assert done.code == 1, done.err
    report = json.loads(done.out)
    failed = [check["says"] for check in report["checks"] if check["status"] == "FAIL"]
    assert any(wanted.said[0] in says and f"{name}.py:{wanted.line}" in says for says in failed), failed
    assert report["passed"] is False and "Traceback" not in done.err


@pytest.mark.parametrize("place", ["top", "load", "builder"])
def test_ctrl_c_while_an_environment_is_loaded_is_the_users(shop: Workshop, place: str) -> None:
    shop.environment("slow_to_load", source(**{place: "print('loading', flush=True)\ntime.sleep(60)"}))
    running = shop.start("run", "slow_to_load,sums", *PLAYED)
    running.says("loading")
    running.send(signal.SIGINT)
    done = running.wait()
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err and not (shop.cwd / "outputs").exists()


@pytest.mark.slow
def test_what_it_leaves_running_is_listed_with_its_number(play: Callable[[str], Played]) -> None:
    played = play("leaves_behind")
    pids = [int(pid) for pid in re.findall(r"sleep 3600 \(process (\d+)\)", played.done.err)]
    assert len(pids) == 3 and "and 13 more" in played.done.said
    for pid in pids:
        assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x003600\x00", "named, and not ended"
    assert len(at_work_in(played.shop.cwd)) == 16


HOARDER = source(
    top="kept = []",
    setup="while True: kept.append(open(os.devnull))  # fault",
)


@pytest.mark.slow
def test_an_environment_that_takes_all_descriptors_is_named(shop: Workshop) -> None:
    shop.environment("hoarder", HOARDER)

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    done = shop.start("run", "hoarder", *PLAYED, preexec_fn=few).wait()
    assert done.code == 1 and "Traceback" not in done.err, done.err
    run = done.run
    assert run["summary"] is None or run["summary"]["scored"] == 0
    failed = [line["error"] for line in lines(shop.run_dir()) if line["type"] == "failed"]
    assert any(re.search(r"OSError.* Too many open files.*hoarder\.py:\d+", error) for error in failed) or (
        "Too many open files" in run["note"]
    )
