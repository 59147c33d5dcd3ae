"""Inspect logs, as Inspect itself reads them: its functions, its tables, its command and its viewer's server."""

from __future__ import annotations

import io
import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import store_samples as samples
import strange_runs
from dead_ports import free_port
from exported_runs import exported_runs
from reader_env import reader, reader_environ, reader_python
from strange_runs import BREAKS, HUGE, PIXEL, strange_run

from harness.core.types import Usage
from harness.plugins.exports.inspect import write
from harness.plugins.exports.inspect_sample import SampleIds
from harness.store.rundir import RunDir

READ = """
import json, sys
from inspect_ai.analysis import evals_df, messages_df, samples_df
from inspect_ai.log import *

def table(frame):
    return json.loads(frame.to_json(orient="records", date_format="iso"))

for path in sys.argv[1:]:
    log = read_eval_log(path)
    text = [sample.model_dump_json() for sample in log.samples]
    one_by_one = [read_eval_log_sample(path, id=s.id, epoch=s.epoch).model_dump_json() for s in log.samples]
    streamed = [s.model_dump_json() for s in read_eval_log_samples(path, all_samples_required=False)]
    print(json.dumps({
        "header": json.loads(read_eval_log(path, header_only=True).model_dump_json(exclude={"samples"})),
        "samples": [json.loads(each) for each in text],
        "same": one_by_one == text and sorted(streamed) == sorted(text),
        "summaries": [json.loads(each.model_dump_json()) for each in read_eval_log_sample_summaries(path)],
        "evals": table(evals_df(path)), "rows": table(samples_df(path)), "messages": table(messages_df(path)),
    }))
"""
"""All that Inspect's own code makes of each log, a line a log."""

LISTED = "2026-11-21T09-15-03_odd.json"
"""A name by which Inspect knows a `.json` file for a log."""


@dataclass(frozen=True)
class Logs:
    """Logs of runs of every kind, and what Inspect read of them."""

    folder: Path
    odd: RunDir
    read: dict[str, dict[str, Any]]

    def samples(self, name: str = "odd.eval") -> dict[tuple[Any, int], dict[str, Any]]:
        """The samples of a log by their id and epoch."""
        return {(sample["id"], sample["epoch"]): sample for sample in self.read[name]["samples"]}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    reader_python()
    folder = tmp_path_factory.mktemp("logs")
    odd = strange_run(folder / "outputs")
    runs = {"odd": odd, **exported_runs(folder / "shop")}
    names = [*(f"{name}.eval" for name in runs), LISTED]
    home = folder / "logs"
    home.mkdir()
    for name in names:
        write(runs[name.partition(".")[0]] if name != LISTED else odd, home / name)
    done = reader("-c", READ, *(home / name for name in names), cwd=folder)
    assert done.returncode == 0, done.stderr
    read = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Logs(home, odd, dict(zip(names, read, strict=True)))


@pytest.fixture
def odd(tmp_path: Path) -> RunDir:
    return strange_run(tmp_path)


def members(path: Path) -> dict[str, Any]:
    """The JSON members of an `.eval` file, in order; Python reads the NaN in them."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def log_head(run: RunDir, path: Path) -> dict[str, Any]:
    """The head of a run's log."""
    write(run, path)
    return members(path)["header.json"]


# What Inspect reads


@pytest.mark.slow
def test_every_way_of_reading_gives_the_same_samples(logs: Logs) -> None:
    assert {name: log["same"] for name, log in logs.read.items()} == dict.fromkeys(logs.read, True)
    assert {name: len(log["samples"]) for name, log in logs.read.items()} == {
        "odd.eval": strange_runs.ROLLOUTS, "run.eval": 6, "group.eval": 12, "agent.eval": 40, "multi.eval": 8,
        LISTED: strange_runs.ROLLOUTS,
    }  # fmt: skip
    packed, plain = logs.read["odd.eval"], logs.read[LISTED]
    assert json.dumps(packed["header"]) == json.dumps(plain["header"])
    # Inspect sorts the samples of an archive.
    assert sorted(map(json.dumps, packed["samples"])) == sorted(map(json.dumps, plain["samples"]))
    assert [len(logs.read[LISTED][part]) for part in ("evals", "rows")] == [1, strange_runs.ROLLOUTS]


@pytest.mark.slow
def test_the_header_says_what_was_run(logs: Logs) -> None:
    header = logs.read["odd.eval"]["header"]
    spec = header["eval"]
    assert (header["version"], header["status"], header["error"]) == (2, "success", None)
    assert (spec["task"], spec["model"], spec["run_id"]) == ("odd", "lab/m-1", logs.odd.id)
    assert (spec["created"], spec["task_version"]) == ("2026-11-21T09:15:03.250000+00:00", "1.2")
    assert spec["task_args"] == {"size": str(HUGE)}
    assert spec["model_base_url"] == "https://api.openai.com/v1"
    config = spec["model_generate_config"]
    assert (config["temperature"], config["max_tokens"], config["seed"]) == (0.5, 64, 3)
    assert (config["stop_seqs"], config["top_k"]) == (["END"], None)
    assert spec["model_args"] == {"top_k": "many", "vendor": [1]}
    assert (spec["config"]["epochs"], spec["config"]["epochs_reducer"]) == (4, ["mean"])
    assert (spec["config"]["time_limit"], spec["config"]["max_samples"], spec["config"]["limit"]) == (91, 8, 12)
    assert spec["packages"] == {"bench-harness": "0.1.0", "odd": "1.2"}
    assert spec["revision"] == {"type": "git", "origin": "", "commit": "0123abc", "dirty": True}
    assert spec["dataset"]["samples"] == 12
    assert [scorer["name"] for scorer in spec["scorers"]] == ["reward", "correct"]


@pytest.mark.slow
def test_results_are_those_of_the_summary_and_leave_the_unscored_out(logs: Logs) -> None:
    results = logs.read["odd.eval"]["header"]["results"]
    assert (results["total_samples"], results["completed_samples"]) == (48, strange_runs.ROLLOUTS - 3)
    assert results["metadata"]["failed"] == 3
    reward, correct = results["scores"][:2]
    # Ten examples have a score: (0.5 + 0 - 0.5 + 1 + 1 + 0.25 + 0 + 1 + 0.5 + 1) / 10.
    assert reward["metrics"]["mean"]["value"] == pytest.approx(0.475)
    assert reward["metrics"]["stderr"]["value"] == pytest.approx(0.16853, abs=1e-5)
    assert (reward["scored_samples"], reward["unscored_samples"]) == (10, 2)
    assert (correct["name"], correct["scored_samples"]) == ("correct", 9)
    assert {score["reducer"] for score in results["scores"][2:]} == {"pass_at_2", "pass_k_2"}
    assert results["headline"] == {"scorer": "reward", "score": "reward", "metric": "mean", "reducer": None}


@pytest.mark.slow
def test_a_rollout_without_a_score_is_an_error_or_nan_and_never_0(logs: Logs) -> None:
    found = logs.samples()
    late, limited, unjudged, unscored = (found[7, epoch] for epoch in (1, 2, 3, 4))
    assert late["scores"] is None and limited["scores"] is None
    assert late["error"]["message"] == "timeout: no reply in 600 s"
    assert limited["error"]["message"] == "rate_limit: HTTP 429 a\ufffdb"
    assert late["output"]["completion"] == "Let me th"
    assert limited["messages"][-1]["role"] == "user" and limited["output"]["choices"] == []
    for sample, reason in ((unjudged, "correct JudgeError"), (unscored, "not scored")):
        assert math.isnan(sample["scores"]["reward"]["value"])
        assert sample["scores"]["reward"]["reason"] == reason
        assert sample["error"] is None
    assert unjudged["scores"]["reward"]["explanation"] == "correct: JudgeError: the judge did not answer\n\nhm"
    assert math.isnan(unjudged["scores"]["correct"]["value"])
    assert unjudged["scores"]["correct"]["reason"] == "JudgeError"
    rows = {(row["id"], row["epoch"]): row for row in logs.read["odd.eval"]["rows"]}
    assert [rows["7", epoch]["score_reward"] for epoch in (1, 2, 3, 4)] == [None] * 4
    assert [rows[found_id(logs, index), 1]["score_reward"] for index in (0, 1, 2)] == [1.0, 0.0, -0.5]


def found_id(logs: Logs, index: int) -> str:
    """The id of an example's samples, as text."""
    return str(logs.read["odd.eval"]["header"]["eval"]["dataset"]["sample_ids"][index])


@pytest.mark.slow
def test_messages_tools_reasoning_and_refusals_have_their_places(logs: Logs) -> None:
    sample = logs.samples()[5, 1]
    system, user, first, *answers, last = sample["messages"]
    assert (system["content"], user["content"]) == ("Think.", "What is 5 + 1?")
    assert (system["source"], user["source"], first["source"], first["model"]) == (
        "input",
        "input",
        "generate",
        "lab/m-1",
    )
    assert [(part["type"], part["reasoning"]) for part in first["content"]] == [("reasoning", "I need two tools.")]
    calls = {call["id"]: call for call in first["tool_calls"]}
    assert calls["c1"]["arguments"] == {"a": 2, "b": [1, 2]} and calls["c1"]["parse_error"] is None
    assert calls["c2"]["arguments"] == {"arguments": '{"a": '} and "not JSON" in calls["c2"]["parse_error"]
    assert calls["c3"]["arguments"] == {"arguments": "[1]"} and "not a JSON object" in calls["c3"]["parse_error"]
    assert (calls["c4"]["type"], calls["c4"]["arguments"]) == ("custom", {"input": "x.*"})
    assert calls["c6"]["arguments"]["a"] is None
    assert [(each["role"], each["tool_call_id"], each["function"]) for each in answers] == [
        ("tool", "c1", "add"), ("tool", "c2", "add"), ("tool", "c3", "add"), ("tool", "c4", "grep"),
    ]  # fmt: skip
    assert (last["content"], last["metadata"]) == ("It is 3.", {"annotations": [{"url": "x"}]})
    assert (sample["output"]["completion"], sample["output"]["choices"][0]["stop_reason"]) == ("It is 3.", "stop")
    assert sample["limit"] == {"type": "turn", "limit": 2.0, "reason": "max_turns_reached"}
    assert sample["scores"]["reward"]["explanation"] == 'too slow\n\n{"expertId":"m","errors":["$.a: missing"]}'
    refused = logs.samples()[6, 1]
    assert refused["messages"][-1]["content"][0]["refusal"] is True
    assert refused["output"]["choices"][0]["stop_reason"] == "content_filter"
    assert refused["scores"]["correct"]["explanation"] == "ValueError: no number"


@pytest.mark.slow
def test_events_tell_the_conversation_turn_by_turn(logs: Logs) -> None:
    sample = logs.samples()[5, 1]
    events = sample["events"]
    assert [event["event"] for event in events] == ["model", *["tool"] * 4, "model"]
    assert [message["role"] for message in events[0]["input"]] == ["system", "user"]
    assert events[-1]["input"] == sample["messages"][:-1]
    assert (events[1]["function"], events[1]["arguments"], events[1]["result"]) == ("add", {"a": 2, "b": [1, 2]}, "3")
    for name in ("odd.eval", "agent.eval", "multi.eval"):
        told = {row["message_id"] for row in logs.read[name]["messages"]}
        replied = [s for s in logs.read[name]["samples"] if s["output"]["choices"]]
        assert told == {message["id"] for sample in replied for message in sample["messages"]}


@pytest.mark.slow
def test_odd_text_numbers_and_parts_come_through(logs: Logs) -> None:
    found = logs.samples()
    odd = found[found_id(logs, 1), 1]
    assert odd["input"] == "a\ufffdb" + BREAKS + "🙂"
    assert (odd["target"], odd["output"]["completion"]) == ("a\ufffdb", "")
    assert odd["id"].startswith("naïve/🙂\ufffd\ufffdxxx") and len(odd["id"]) == 200
    assert odd["metadata"]["a\ufffdb"] == ["a\ufffdb"]
    assert (odd["metadata"]["huge"], odd["metadata"]["bench"], odd["metadata"]["fraction"]) == (str(HUGE), "taken", 0.1)
    assert odd["metadata"]["bench_"]["attempts"] == 1
    assert odd["store"] == {"big": str(HUGE), "text": BREAKS}
    far = found[str(2**60), 1]
    assert [(message["role"], message["metadata"]) for message in far["input"]] == [
        ("system", {"role": "developer"}), ("user", None),
    ]  # fmt: skip
    low, high = (found[index, 1]["input"][0]["content"] for index in (3, 4))
    assert [part["type"] for part in low] == ["text", "image", "audio", "data"]
    assert (low[1]["image"], low[1]["detail"], high[1]["detail"]) == (PIXEL + "3", "low", "auto")
    assert low[2]["audio"] == "data:audio/wav;base64,UklGRg=="
    assert low[3]["data"] == {"type": "file", "file": {"file_id": "f-1"}}
    strange = found[11, 1]
    assert (strange["input"], strange["messages"][0]["metadata"]) == ("5", {"role": "narrator"})
    assert (strange["started_at"], strange["error"]["message"]) == (None, "environment_error: no board")


@pytest.mark.slow
def test_two_examples_of_one_id_stay_two(logs: Logs) -> None:
    found = logs.samples()
    assert [found["same", epoch]["scores"]["reward"]["value"] for epoch in (1, 2)] == [1.0, 0.0]
    story = found["same#2", 1]
    assert (story["input"], story["output"]["completion"]) == ("Once upon a", " time")
    assert (story["metadata"]["bench"]["task"], story["metadata"]["bench"]["replies_without_usage"]) == ("story", 2)
    assert story["model_usage"] == {} and story["output"]["choices"][0]["stop_reason"] == "max_tokens"


@pytest.mark.slow
def test_usage_and_times_are_in_the_reader_s_own_terms(logs: Logs) -> None:
    found = logs.samples()
    assert found["same", 1]["model_usage"]["lab/m-1"] == {
        "input_tokens": 6, "output_tokens": 5, "total_tokens": 15, "input_tokens_cache_read": 4,
        "input_tokens_cache_write": None, "reasoning_tokens": 2, "total_cost": 0.5,
    }  # fmt: skip
    judged = found[8, 1]
    assert judged["model_usage"]["lab/judge"]["total_tokens"] == 53
    assert judged["role_usage"]["grader"]["total_cost"] == 0.25
    assert judged["scores"]["reward"]["explanation"] == "CORRECT\n\nyes"
    assert judged["scores"]["reward"]["metadata"]["verdict"] == "CORRECT"
    assert judged["store"] == {"turn": 2}
    talked = found[10, 1]
    assert (talked["total_time"], talked["working_time"], talked["turn_count"]) == (4.5, 2.5, 2)
    assert talked["messages"][-3]["metadata"] == {"name": "asker"}
    stats = logs.read["odd.eval"]["header"]["stats"]
    assert stats["started_at"] == "2026-11-21T09:15:03.250000+00:00"
    assert stats["completed_at"] == stats["started_at"]  # its rollouts are older, as a replay's are
    assert stats["role_usage"]["grader"]["input_tokens"] == 100


@pytest.mark.slow
def test_summaries_are_short_and_agree_with_the_samples(logs: Logs) -> None:
    log = logs.read["odd.eval"]
    summaries = {(each["id"], each["epoch"]): each for each in log["summaries"]}
    assert len(summaries) == strange_runs.ROLLOUTS and set(summaries) == set(logs.samples())
    first = log["summaries"][2]
    assert first["metadata"]["deep"] == "(too long for a summary)"
    assert [each["error"] for each in log["summaries"] if each["error"]] == [
        "timeout: no reply in 600 s", "rate_limit: HTTP 429 a\ufffdb", "environment_error: no board",
    ]  # fmt: skip
    assert [part["text"] for part in summaries[3, 1]["input"][0]["content"]] == [
        "What is this?",
        "(Image)",
        "(Audio)",
        "(Data)",
    ]
    assert all(each["completed"] for each in log["summaries"])


@pytest.mark.slow
def test_runs_of_every_kind_keep_their_scores(logs: Logs) -> None:
    for name, metric in (("group", "place"), ("agent", "examples.rewards:exact_match"), ("multi", "valid")):
        log = logs.read[f"{name}.eval"]
        assert log["header"]["status"] == "success"
        assert metric in {scorer["name"] for scorer in log["header"]["eval"]["scorers"]}
        assert all(sample["error"] is None for sample in log["samples"])
    places = {key: sample["scores"]["place"]["value"] for key, sample in logs.samples("group.eval").items()}
    assert len(places) == 12 and all(place == epoch - 1 for (_, epoch), place in places.items())
    assert {s["metadata"]["bench"]["task"] for s in logs.read["group.eval"]["samples"]} == {"upper", "lower"}
    evals = [logs.read[f"{name}.eval"]["evals"][0] for name in ("run", "group", "agent", "multi")]
    assert [row["score_reward_mean"] for row in evals[1:3]] == [1.0, 1.0]
    assert all(row["status"] == "success" for row in evals)


@pytest.mark.slow
def test_inspect_s_command_prints_a_log(logs: Logs) -> None:
    done = reader("-m", "inspect_ai", "log", "dump", logs.folder / "odd.eval", "--header-only", cwd=logs.folder.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["eval"]["run_id"] == logs.odd.id


@contextmanager
def viewing(folder: Path, home: Path) -> Generator[str]:
    """The address of `inspect view` over a folder of logs."""
    port = free_port()
    command = [reader_python(), "-m", "inspect_ai", "view", "start", "--log-dir", folder, "--port", str(port)]
    with (home / "view.txt").open("w") as said:
        process = subprocess.Popen(command, cwd=home, env=reader_environ(home), stdout=said, stderr=said)
        try:
            url, until = f"http://127.0.0.1:{port}", time.monotonic() + 90
            while True:
                try:
                    get(f"{url}/api/log-dir")
                    break
                except urllib.error.URLError:
                    assert process.poll() is None and time.monotonic() < until, (home / "view.txt").read_text()
                    time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.read()


@pytest.mark.slow
def test_inspect_view_serves_the_log_and_its_samples(logs: Logs, tmp_path: Path) -> None:
    with viewing(logs.folder, tmp_path) as url:
        assert b"<html" in get(f"{url}/")
        files = {Path(each["name"]).name: each for each in json.loads(get(f"{url}/api/logs"))["files"]}
        assert set(files) == set(logs.read)
        assert files["odd.eval"]["task"] == "odd"
        place = urllib.parse.quote(files["odd.eval"]["name"], safe="")
        header = json.loads(get(f"{url}/api/logs/{place}?header-only=0"))
        assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == pytest.approx(0.475)
        # The page reads samples out of the archive, by byte ranges.
        size = int(get(f"{url}/api/log-size/{place}"))
        data = get(f"{url}/api/log-bytes/{place}?start=0&end={size - 1}")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            sample = json.loads(archive.read("samples/5_epoch_1.json"))
        assert sample["output"]["completion"] == "It is 3."
        whole = json.loads(get(f"{url}/api/logs/{place}"))
        assert len(whole["samples"]) == strange_runs.ROLLOUTS


# What is written, without Inspect


def test_the_archive_holds_what_readers_look_for(odd: RunDir, tmp_path: Path) -> None:
    exported = write(odd, tmp_path / "odd.eval")
    assert (exported.paths, exported.rows) == ((tmp_path / "odd.eval",), strange_runs.ROLLOUTS)
    assert exported.notes == (
        "5 rollouts have no score: the log has NaN or an error for them, and its means exclude them",
    )
    found = members(tmp_path / "odd.eval")
    listed = [f"samples/{each['id']}_epoch_{each['epoch']}.json" for each in found["summaries.json"]]
    assert list(found) == [*listed, "_journal/start.json", "summaries.json", "header.json"]
    assert found["_journal/start.json"]["eval"] == found["header.json"]["eval"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evals", "odd.eval"]  # no temporary file is left


def test_json_and_eval_hold_the_same_and_a_second_export_too(odd: RunDir, tmp_path: Path) -> None:
    for name in ("one.eval", "two.eval", "one.JSON", "two.json"):
        write(odd, tmp_path / name)
    packed = members(tmp_path / "one.eval")
    assert repr(packed) == repr(members(tmp_path / "two.eval"))
    text = (tmp_path / "one.JSON").read_bytes()
    assert text == (tmp_path / "two.json").read_bytes()
    whole = json.loads(text)
    inside = [value for name, value in packed.items() if name.startswith("samples/")]
    assert repr(whole.pop("samples")) == repr(inside)
    assert repr(whole) == repr(packed["header.json"])


def test_a_json_log_that_the_viewer_would_not_list_says_how_to_call_it(odd: RunDir, tmp_path: Path) -> None:
    notes = write(odd, tmp_path / "mine.json").notes
    assert notes[1:] == (
        f"inspect view lists a .json log only if its name begins with the time of the run, as in {LISTED}",
    )
    assert write(odd, tmp_path / LISTED).notes == notes[:1]


def test_nothing_is_replaced(odd: RunDir, tmp_path: Path) -> None:
    for name in ("there.eval", "there.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(FileExistsError):
            write(odd, tmp_path / name)
        assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("done", "success"),
        ("stopped", "error"),
        ("failed", "error"),
        ("interrupted", "cancelled"),
        ("running", "cancelled"),
    ],
)
def test_a_run_that_did_not_end_well_says_so(tmp_path: Path, status: str, shown: str) -> None:
    run = samples.make_run(tmp_path, status=status)
    exported = write(run, tmp_path / "empty.eval")
    header = members(tmp_path / "empty.eval")["header.json"]
    assert (exported.rows, header["status"], "error" in header) == (0, shown, shown == "error")
    assert header["results"]["total_samples"] == 0
    assert math.isnan(header["results"]["scores"][0]["metrics"]["mean"]["value"])
    assert members(tmp_path / "empty.eval")["summaries.json"] == []


def test_rewards_without_a_bound_and_settings_that_are_not_there_are_no_obstacle(tmp_path: Path) -> None:
    run = samples.make_run(tmp_path, reward_range=(-math.inf, math.inf), settings={}, status="done")
    samples.write(run.journal_path, [samples.example(), samples.generated(), samples.failed(0, 1)])
    write(run, tmp_path / "bare.eval")
    header = members(tmp_path / "bare.eval")["header.json"]
    assert header["eval"]["metadata"]["bench"]["reward_range"] == [None, None]
    assert header["results"]["metadata"]["bounds"] is None


def test_ids_are_told_apart_by_their_text() -> None:
    ids = SampleIds()
    own: list[Any] = [1, "1", "1#2", 1, True, 2**53, 2**53 - 1, "", "a" * 300, "a" * 301, -3, "x\x00y"]
    given = [ids.of(samples.example(number, example_id=each)) for number, each in enumerate(own)]
    assert given[:8] == [1, "1#2", "1#2#2", "1#3", "true", str(2**53), 2**53 - 1, "-"]
    assert len({str(each) for each in given}) == len(own)
    assert [len(str(each)) for each in given[8:10]] == [200, 200]
    assert given[10:] == [-3, "x\ufffdy"]
    assert ids.all == given
    again = samples.example(len(own), example_id=1)
    assert ids.of(again) == ids.of(again) == "1#4"


def test_two_runs_of_one_model_are_two_tasks(tmp_path: Path) -> None:
    """Inspect's viewer hides all logs of a task but the newest: they are attempts at the same thing there."""
    runs = [strange_run(tmp_path / name) for name in "ab"]
    tasks = [log_head(run, tmp_path / f"{name}.eval")["eval"]["task_id"] for run, name in zip(runs, "ab", strict=True)]
    again = log_head(runs[0], tmp_path / "again.eval")["eval"]["task_id"]
    assert tasks[0] != tasks[1]
    assert again == tasks[0]


def test_a_log_ends_after_it_began_and_lasts_as_long_as_the_run(tmp_path: Path) -> None:
    run = samples.make_run(tmp_path, created="2026-11-21T09:15:03.000000Z")
    samples.write(run.journal_path, [samples.example(), samples.generated(), samples.scored()])
    run.write_manifest(run.read_manifest().ended("done"))
    run.write_summary({"wall_s": 90.5})
    stats = log_head(run, tmp_path / "a.eval")["stats"]
    assert (stats["started_at"], stats["completed_at"]) == (
        "2026-11-21T09:15:03.000000Z", "2026-11-21T09:16:33.500000+00:00",
    )  # fmt: skip


def test_one_turn_is_no_limit_that_was_met(tmp_path: Path) -> None:
    run = samples.make_run(tmp_path)
    single = samples.generated(stop_condition="max_turns_reached", usage=Usage())
    samples.write(run.journal_path, [samples.example(), single, samples.scored()])
    write(run, tmp_path / "one.eval")
    sample = members(tmp_path / "one.eval")["samples/0_epoch_1.json"]
    assert "limit" not in sample and sample["model_usage"] == {} and "usage" not in sample["output"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long.eval", "long.json"])
def test_memory_does_not_grow_with_the_run(tmp_path: Path, name: str) -> None:
    run = samples.make_run(tmp_path)
    text = "word " * 40_000
    said = [{"role": "assistant", "content": text}]
    lines = [
        samples.example(),
        *(each for n in range(200) for each in (samples.generated(0, n, completion=said), samples.scored(0, n))),
    ]
    samples.write(run.journal_path, lines)
    code = f"""
{samples.PEAK}
import sys
from pathlib import Path
from harness.plugins.exports.inspect import write
from harness.store.rundir import RunDir
before = peak()
print(write(RunDir(Path(sys.argv[1])), Path(sys.argv[2])).rows, peak() - before)
"""
    done = samples.python(code, run.path, tmp_path / name)
    assert done.returncode == 0, done.stderr
    rows, grown = done.stdout.split()
    assert (int(rows), run.journal_path.stat().st_size > 38 << 20) == (200, True)
    assert float(grown) < 25
