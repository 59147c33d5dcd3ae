"""The last classic release of verifiers reads what was exported for it: its viewer, its loader, and `datasets`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from odd_runs import TOOLS, odd_run
from reader_env import reader, reader_environ, reader_python
from store_samples import example, failed, generated, scored

from harness.core.records import Record
from harness.store.export_formats import export_run, formats

pytestmark = pytest.mark.slow

VIEWED = """
import asyncio, json
from verifiers.scripts.tui import LazyRunResults, VerifiersTUI, ViewRunScreen, discover_results
from verifiers.scripts.tui import _compute_run_overview_stats, _run_setting_rows

index = discover_results("none", "verifiers")
[(env_id, models)] = index.items()
[(model, [run])] = models.items()
stats = _compute_run_overview_stats(run)

async def shown():
    app, seen = VerifiersTUI(index), []
    async with app.run_test(size=(160, 50)) as pilot:
        screen = ViewRunScreen(run)
        await app.push_screen(screen)
        await pilot.pause()
        for number in range(len(screen.records)):
            record = screen.records[number]
            build = screen._build_score_text, screen._build_usage_text, screen._build_info_text
            titles = [part.title for part in screen._history_section_data(record)]
            seen.append([*(text(record).plain for text in build), titles])
            await pilot.press("n")
            await pilot.pause()
    return seen

print(json.dumps({
    "env_id": env_id, "model": model, "rollouts": len(LazyRunResults(run)), "rewards": stats.rewards,
    "metrics": {each.name: each.count for each in stats.metric_summaries},
    "settings": _run_setting_rows(run.load_metadata()), "shown": asyncio.run(shown()),
}))
"""

LOADED = """
import json
from pathlib import Path
from verifiers.types import ClientConfig, RolloutTiming
from verifiers.utils.message_utils import from_raw_message
from verifiers.utils.path_utils import is_valid_eval_results_path
from verifiers.utils.save_utils import GenerateOutputsBuilder, load_outputs, validate_resume_metadata

[folder] = Path("verifiers").glob("evals/*/*")
assert is_valid_eval_results_path(folder)
validate_resume_metadata(folder, "sums", "lab/m-1", 3, 2)
outputs = load_outputs(folder)
builder = GenerateOutputsBuilder("sums", {}, "lab/m-1", ClientConfig(), 3, 1, [], {}, folder)
builder.add_outputs(outputs)
metadata = builder.build_metadata()
roles = []
for output in outputs:
    for messages in (output["prompt"], output["completion"]):
        for message in messages if isinstance(messages, list) else []:
            calls = [json.loads(call) for call in message.get("tool_calls", [])]
            read = from_raw_message({**message, **({"tool_calls": calls} if calls else {})})
            roles.append([read.role, [call.name for call in getattr(read, "tool_calls", None) or []]])
print(json.dumps({
    "rewards": [output["reward"] for output in outputs], "roles": roles,
    "totals": [RolloutTiming.model_validate(output["timing"]).generation.duration for output in outputs],
    "average": metadata["avg_reward"], "errors": metadata["avg_error"], "usage": metadata["usage"],
}))
"""

DATASET = """
import json, sys
from datasets import load_dataset
rows = load_dataset("json", data_files=sys.argv[1], split="train", cache_dir="cache")
print(json.dumps({"columns": rows.column_names, "rewards": rows["reward"][:], "completion": rows[0]["completion"]}))
"""


def exported(cwd: Path, lines: list[Record] | None = None, **manifest: Any) -> Path:
    """Exports to where no `-o` would, below `cwd`; returns `results.jsonl`."""
    run = odd_run(cwd, lines, **manifest)
    place = cwd / formats()["verifiers"].default_target(run.read_manifest())
    return export_run(run, formats()["verifiers"], place).paths[0]


def answer(code: str, cwd: Path, *arguments: str | Path) -> Any:
    done = reader("-c", code, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_its_viewer_finds_the_run_and_shows_every_rollout(tmp_path: Path) -> None:
    exported(tmp_path)
    seen = answer(VIEWED, tmp_path)
    assert (seen["env_id"], seen["model"], seen["rollouts"]) == ("sums", "lab/m-1", 6)
    assert seen["rewards"] == [1.0, -1.5, 0.0]
    assert (seen["metrics"]["correct"], seen["metrics"]["style"]) == (3, 3)
    assert ["sampling.temperature", "0.5"] in seen["settings"]
    assert [shown[0].split("\n")[1] for shown in seen["shown"]] == ["1.000", "-1.500", "None", "None", "0.000", "None"]
    score, usage, info, titles = seen["shown"][0]
    assert "correct  1.000" in score
    assert usage.startswith("Tokens\ninput_tokens: 10\noutput_tokens: 5\n\nTiming\ngeneration 500ms (model 250ms")
    assert 'board\n[\n  1,\n  "ü"\n]' in info
    assert titles[1] == "1. assistant  reasoning: One needs a sum. ... 2"
    assert "judge refused: no" in seen["shown"][3][2]


def test_its_command_starts_where_ours_says(tmp_path: Path) -> None:
    """`vf-tui` itself, on a terminal, by the line that `bench export` prints."""
    import pty
    import select

    done = export_run(odd_run(tmp_path), formats()["verifiers"], tmp_path / "verifiers/evals/sums--lab--m-1/one")
    setting, command = shlex.split(formats()["verifiers"].opening(done))
    name, value = setting.split("=", 1)
    ours, theirs = pty.openpty()
    environ = {**reader_environ(tmp_path / "home"), name: value, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    viewer = subprocess.Popen(
        [reader_python().with_name(command)], cwd=tmp_path, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while b"sums" not in said and select.select([ours], [], [], 60)[0]:
            said += os.read(ours, 1 << 16)
    finally:
        viewer.kill()
        viewer.wait()
        os.close(ours)
    assert b"sums" in said, said[-2000:]


def test_its_loader_takes_every_line(tmp_path: Path) -> None:
    exported(tmp_path)
    seen = answer(LOADED, tmp_path)
    assert seen["rewards"] == [1.0, -1.5, None, None, 0.0, None]
    assert seen["roles"][:5] == [["system", []], ["user", []], ["assistant", ["add"]], ["tool", []], ["assistant", []]]
    assert [round(total, 3) for total in seen["totals"]] == [0.5, 0.5, 0.0, 0.5, 0.5, 0.5]
    # Its mean is over rollouts, ours in `avg_reward` over examples; neither counts what has no score.
    assert seen["average"] == pytest.approx(-0.5 / 3)
    assert (seen["errors"], seen["usage"]) == (0.5, {"input_tokens": 10.0, "output_tokens": 5.0})


@pytest.mark.parametrize("python", ["ours", "theirs"])
def test_datasets_loads_the_lines(tmp_path: Path, python: str) -> None:
    lines: list[Record] = []
    for index in range(3):
        lines.append(example(index))
        lines += [generated(index, 0, completion=TOOLS), scored(index, 0, float(index)), failed(index, 1)]
    results = exported(tmp_path, lines, state_columns=("turn",))
    if python == "theirs":
        seen = answer(DATASET, tmp_path, results)
    else:
        done = subprocess.run(
            [sys.executable, "-c", DATASET, results], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["rewards"] == [0.0, None, 1.0, None, 2.0, None]
    assert seen["completion"][2]["content"] == TOOLS[2]["content"]
    assert "long_error_chain" in seen["columns"]
