"""The dataset card: what a reader, a person and the Hub find in it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import make_run, rollouts, write
from tables import for_each_row

from harness.core.errors import StoreError
from harness.core.records import Record
from harness.core.redact import redactor
from harness.store.card import merge_remote, rebuild_card, refresh_card, run_card_section
from harness.store.card_head import (
    config_entry,
    configs_yaml,
    facts_yaml,
    join_card,
    merge_config,
    read_configs,
    split_card,
)
from harness.store.card_text import escape, fenced
from harness.store.dataset import DatasetWriter
from harness.store.manifest import Manifest
from harness.store.rows import RowShape
from harness.store.rundir import RunDir

SUMMARY = {
    "num_examples": 100, "num_rollouts": 200, "scored": 198, "unscored": {"timeout": 2},
    "reward": {"mean": 0.73456, "stderr": 0.02, "ci95": [0.69, 0.78], "std": 0.44, "min": 0.0, "max": 1.0},
    "metrics": {"correct": {"mean": 0.5}}, "pass_at_k": {"1": 0.73, "2": 0.8}, "pass_hat_k": {"1": 0.73, "2": 0.6},
    "usage": {"input_tokens": 1000, "output_tokens": 500}, "wall_s": 3.5,
}  # fmt: skip


def run_with_rows(tmp_path: Path, rows: int = 2, day: int = 1, **changes: Any) -> RunDir:
    made = make_run(tmp_path, **changes)
    run = RunDir(made.path.rename(made.parent / f"202601{day:02}T000000Z-abcd"))
    lines: list[Record] = list(rollouts(rows))
    write(run.journal_path, lines)
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    return run


def head_of(path: Path) -> Any:
    return yaml.safe_load(split_card((path / "README.md").read_text())[0])


def test_a_run_that_was_made_from_another_says_so(tmp_path: Path) -> None:
    """Its rows are those of another run, in whole or in part: whoever counts runs must not count them twice."""
    parent = run_with_rows(tmp_path, day=1)
    derived = {"how": "rescore", "parent": parent.id, "only": "unscored", "model": None, "path": "elsewhere"}
    child = run_with_rows(tmp_path, day=2, parent=parent.id, derived=derived, name="mine")
    rebuild_card(parent.parent)
    body = (parent.parent / "README.md").read_text()
    assert f"| {child.id} | mine, rescore of {parent.id} (only unscored) |" in body
    assert body.count(f"| made from | rescore of {parent.id} (only unscored) |") == 1
    assert f"| {parent.id} | {parent.read_manifest().name or 'sums'} |" in body
    assert "elsewhere" not in body


def test_one_config_for_every_run_that_has_rows(tmp_path: Path) -> None:
    runs = [run_with_rows(tmp_path, day=day) for day in (1, 2, 3)]
    empty = make_run(tmp_path)
    (runs[0].parent / "notes").mkdir()
    rebuild_card(runs[0].parent)
    head = head_of(runs[0].parent)
    assert [entry["config_name"] for entry in head["configs"]] == [run.id for run in reversed(runs)]
    assert [entry.get("default") for entry in head["configs"]] == [True, None, None]
    assert head["configs"][1]["data_files"] == [{"split": "train", "path": f"{runs[1].id}/data/*.parquet"}]
    body = (runs[0].parent / "README.md").read_text()
    assert empty.id in body and f"## sums · lab/m-1 · {runs[2].read_manifest().id}" in body
    assert str(tmp_path) not in body, "a card names no folder of this machine"


def test_a_run_tells_its_numbers_its_settings_and_how_to_repeat_it(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, status="done", command="bench run sums -n 100",
        planned={"num_examples": 100, "rollouts_per_example": 2},
        git={"commit": "0123abc", "dirty": True}, versions={"python": "3.13", "sums": "1.0"},
    )  # fmt: skip
    section = run_card_section(
        run.read_manifest(), SUMMARY, source="me/sums", config_toml="[env]\nnum_examples = 100\n"
    )
    for expected in (
        "| without a score because | rollouts |\n|:---|---:|\n| timeout | 2 |\n",
        "| mean reward | 0.7346 |", "| 95 % interval | 0.69 to 0.78 |", "| scored | 198 of 200, unscored: 2 timeout |",
        "| pass@2 | 0.8 |", "| pass^2 | 0.6 |", "| mean correct | 0.5 |", "| tokens | 1000 in, 500 out |",
        "| planned | 100 examples × 2 rollouts |", "| commit | 0123abc with local changes |", "python 3.13, sums 1.0",
        f'load_dataset("me/sums", "{run.id}", split="train")', "bench run sums -n 100", "[env]\nnum_examples = 100",
    ):  # fmt: skip
        assert expected in section
    assert "no summary yet" in run_card_section(run.read_manifest(), None, source="me/sums")


def test_numbers_that_are_not_there_are_dashes(tmp_path: Path) -> None:
    manifest = make_run(tmp_path).read_manifest()
    nothing = {"reward": {"mean": None, "ci95": None}, "usage": {"input_tokens": None, "output_tokens": None}}
    section = run_card_section(manifest, nothing, source="x")
    assert "| mean reward | – |" in section and "| 95 % interval | – |" in section and "| scored | 0 of 0 |" in section
    assert "| tokens | not reported |" in section


@given(st.text(max_size=60))
def test_untrusted_text_stays_text(text: str) -> None:
    shown = escape(text)
    assert "\n" not in shown and "<" not in shown and "|" not in shown.replace("\\|", "")
    block = fenced(text, "toml")
    lines = block.split("\n")
    fence = lines[0].removesuffix("toml")
    assert set(fence) == {"`"} and lines[-1] == fence and fence not in "\n".join(lines[1:-1])


def test_hostile_names_do_not_break_the_card(tmp_path: Path) -> None:
    model = "evil|`x`<script>alert(1)</script>\n---\nconfigs: []\n# [x](http://h)"
    run = run_with_rows(tmp_path, model=model, name="a\u202eb\x1b[31m", command="echo '```'\n```")
    text = (run.parent / "README.md").read_text()
    assert len(head_of(run.parent)["configs"]) == 1
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    body = split_card(text)[1]
    assert "\n---\n" not in body.replace("\n|---|", "")
    assert "````sh" in body


def test_a_card_holds_no_known_secret(tmp_path: Path) -> None:
    known = list(redactor._secrets)  # pyright: ignore[reportPrivateUsage]
    redactor.add("canary-secret-4711")
    try:
        run = run_with_rows(tmp_path, command="bench run sums --header 'X: canary-secret-4711'")
        assert "canary" not in (run.parent / "README.md").read_text()
        assert "canary" not in merge_remote(None, run.path, "me/sums")
    finally:
        redactor._secrets[:] = known  # pyright: ignore[reportPrivateUsage]


def test_a_damaged_manifest_hides_no_other_run(tmp_path: Path) -> None:
    first, second = run_with_rows(tmp_path, day=1), run_with_rows(tmp_path, day=2)
    first.manifest_path.write_text("{")
    rebuild_card(first.parent)
    text = (first.parent / "README.md").read_text()
    assert "cannot read" in text and second.id in text
    assert len(head_of(first.parent)["configs"]) == 2


def test_settings_that_are_no_text_hide_no_run(tmp_path: Path) -> None:
    """The card is rebuilt as every run of the folder ends: one edited file must not fail them all."""
    first, second = run_with_rows(tmp_path, day=1), run_with_rows(tmp_path, day=2)
    first.config_path.write_bytes(b"name = '\xff'")
    rebuild_card(first.parent)
    assert [entry["config_name"] for entry in head_of(first.parent)["configs"]] == [second.id, first.id]
    assert first.id in merge_remote(None, first.path, "me/sums")


def test_rows_that_change_change_the_description(tmp_path: Path) -> None:
    """`datasets` would give out cached rows for ever: its cache knows the card's words, not the files."""
    one, two = run_with_rows(tmp_path, day=1), run_with_rows(tmp_path, day=2)
    before = {entry["config_name"]: entry["description"] for entry in head_of(one.parent)["configs"]}
    refresh_card(one)
    assert {entry["config_name"]: entry["description"] for entry in head_of(one.parent)["configs"]} == before
    path = next(one.data_path.glob("*.parquet"))
    path.rename(path.with_name("part-000000000000007.parquet"))
    refresh_card(one)
    after = {entry["config_name"]: entry["description"] for entry in head_of(one.parent)["configs"]}
    assert after[one.id] != before[one.id] and after[two.id] == before[two.id]
    (one.parent / "README.md").write_text("somebody wrote this")
    refresh_card(two)
    assert {entry["config_name"]: entry["description"] for entry in head_of(one.parent)["configs"]} == after


def test_many_rebuilds_at_once_end_with_all_runs(tmp_path: Path) -> None:
    runs = [run_with_rows(tmp_path, day=day) for day in range(1, 6)]
    (runs[0].parent / "README.md").unlink()
    threads = [threading.Thread(target=rebuild_card, args=(run.parent,)) for run in runs for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(head_of(runs[0].parent)["configs"]) == 5
    assert [path.name for path in runs[0].parent.iterdir() if path.name.startswith(".")] == [".card.lock"]


ENTRY = config_entry("run-2", "data/run-2/*.parquet", default=True)

FOREIGN = """license: mit  # keep me
version: 1.10
configs:
- config_name: mine
  data_files: mine/*.csv
  default: true
  sep: ";"

# about names
pretty_name: "Ω"
"""


def test_a_merge_touches_nothing_else_in_the_head() -> None:
    merged = merge_config(FOREIGN, ENTRY)
    assert merged.startswith("license: mit  # keep me\nversion: 1.10\nconfigs:\n")
    assert merged.endswith('\n# about names\npretty_name: "Ω"\n')
    assert read_configs(merged) == [ENTRY, {"config_name": "mine", "data_files": "mine/*.csv", "sep": ";"}]
    assert merge_config(merged, ENTRY) == merged
    newer = merge_config(merged, config_entry("run-3", "x", default=True))
    assert [(e["config_name"], e.get("default")) for e in read_configs(newer)] == [
        ("run-3", True), ("run-2", None), ("mine", None),
    ]  # fmt: skip


@for_each_row(
    "head",
    [
        "", "# only a comment\n", "{license: mit}", "configs: []\nlicense: mit\n", "configs:\nlicense: mit\n",
        "configs:\n- &a {config_name: q}\nother: *a\n", "license: mit\r\nconfigs:\r\n- config_name: é\r\n",
        "license: mit\nconfigs: [{config_name: q}]", "a: |\n  configs:\n  - x\nlicense: mit\n",
    ],
)  # fmt: skip
def test_any_head_can_be_merged_into(head: str) -> None:
    before = yaml.safe_load(head) or {}
    merged = merge_config(head, ENTRY)
    after = yaml.safe_load(merged)
    assert after["configs"] == [ENTRY, *(before.get("configs") or [])]
    assert {k: v for k, v in after.items() if k != "configs"} == {k: v for k, v in before.items() if k != "configs"}


yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda x: st.lists(x, max_size=3), max_leaves=4
)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda name: name != "configs"), yaml_values, max_size=4),
    st.booleans(),
)
def test_a_merge_into_a_generated_head(table: dict[str, Any], with_configs: bool) -> None:
    if with_configs:
        table = {**table, "configs": [{"config_name": "run-1", "default": True}]}
    head = yaml.safe_dump(table, sort_keys=False)
    merged = yaml.safe_load(merge_config(head, ENTRY))
    assert merged.pop("configs") == [ENTRY, *([{"config_name": "run-1"}] if with_configs else [])]
    table.pop("configs", None)
    assert merged == table


@for_each_row(
    ("head", "message"),
    [
        ("- a\n- b\n", "not a mapping"),
        ("a: [", "cannot be read"),
        ("configs: 7", "not a list"),
        ("configs: [x]", "not a list"),
    ],
)
def test_a_head_that_cannot_be_read_is_refused_with_what_to_do(head: str, message: str) -> None:
    with pytest.raises(StoreError, match=f"{message}.*by hand"):
        merge_config(head, ENTRY)


def test_a_card_falls_apart_into_head_and_body() -> None:
    card = f"---\n{FOREIGN}---\n# Title\n\n---\nmore\n"
    assert split_card(card) == (FOREIGN.rstrip("\n"), "# Title\n\n---\nmore\n")
    assert split_card("# No head\n---\nx\n") == ("", "# No head\n---\nx\n")
    assert split_card("\ufeff---\r\na: 1\r\n---\r\nbody") == ("a: 1", "body")
    assert join_card("", "body") == "body"
    assert yaml.safe_load(configs_yaml([ENTRY])) == {"configs": [ENTRY]}


def test_the_card_of_a_repository_keeps_what_others_wrote(tmp_path: Path) -> None:
    first, second = run_with_rows(tmp_path, day=1), run_with_rows(tmp_path, day=2)
    for run in (first, second):
        run.write_manifest(Manifest(run.id, "sums", "lab/m-1", metric_names=("correct",)))
        run.write_summary(SUMMARY)
    own = f"---\n{FOREIGN}---\n# My results\n\nRead this first.\n"
    card = merge_remote(own, first.path, "me/sums")
    card = merge_remote(card, second.path, "me/sums")
    again = merge_remote(card, first.path, "me/sums")
    head, body = split_card(again)
    assert [e["config_name"] for e in read_configs(head)] == [first.id, second.id, "mine"]
    assert body.startswith("# My results\n\nRead this first.\n")
    assert body.count(f"<!-- bench run {first.id} -->") == 1 and body.count("## sums · lab/m-1 ·") == 2
    sections = [f"<!-- bench run {run.id} -->" for run in (second, first)]
    assert body.index(sections[0]) < body.index(sections[1]), "the newer push stands above"
    assert merge_remote(again, first.path, "me/sums") == again
    twice = merge_remote(merge_remote(card, first.path, "me/sums"), second.path, "me/sums")
    assert twice == card, "pushing all of a suite again leaves its card as it was"


def test_the_first_card_of_a_repository(tmp_path: Path) -> None:
    run = run_with_rows(tmp_path)
    card = merge_remote(None, run.path, "me/sums_m-1")
    head, body = split_card(card)
    assert read_configs(head) == [config_entry(run.id, f"data/{run.id}/*.parquet", default=True)]
    assert body.lstrip().startswith("# sums\\_m-1")
    assert json.dumps("me/sums_m-1") in body


ROW = (
    "| {id} | sums | lab/m-1 | 0.735 | \\[0.690, 0.780\\] | 198 of 200 | 0.800 (k=2) | 0.600 (k=2) | 1,000 | 500 | – "
    "| timeout 2 |"
)


def leaderboard(card: str) -> list[str]:
    """The rows of a repository's leaderboard."""
    block = card.split("<!-- bench leaderboard -->")[1].split("<!-- end of bench leaderboard -->")[0]
    head, rule, *rows = [line for line in block.splitlines() if line.startswith("|")]
    assert head.startswith(
        "| run | environment | model | mean | 95 % interval | scored | pass@k | pass^k | tokens in |"
    )
    assert set(rule) == {"|", ":", "-"} and rule.count("|") == head.count(" | ") + 2
    return rows


def pushed(card: str | None, run: RunDir, mean: float = 0.73456, **changes: Any) -> str:
    run.write_manifest(Manifest(run.id, **{"env_id": "sums", "model": "lab/m-1", **changes}))
    run.write_summary({**SUMMARY, "reward": {**SUMMARY["reward"], "mean": mean}})
    return merge_remote(card, run.path, "me/sums")


def test_a_repository_has_a_leaderboard_of_its_runs(tmp_path: Path) -> None:
    runs = [run_with_rows(tmp_path, day=day) for day in range(1, 5)]
    card = pushed(None, runs[0])
    assert leaderboard(card) == [ROW.format(id=runs[0].id)]
    assert card.index("<!-- end of bench leaderboard -->") < card.index("<!-- bench run ")
    assert "Two intervals do not show whether two means differ: use `bench compare`" in card
    card = pushed(card, runs[1], 0.9)
    card = pushed(card, runs[2], 0.1, model="evil | m | 1.0 |")
    card = pushed(card, runs[3], 0.5, env_id="a|b")
    order = [(runs[3], "0.500"), (runs[1], "0.900"), (runs[0], "0.735"), (runs[2], "0.100")]
    assert [line.split(" | ")[0] for line in leaderboard(card)] == [f"| {run.id}" for run, _ in order]
    assert all(f" | {mean} | " in line for (_, mean), line in zip(order, leaderboard(card), strict=True))
    again = pushed(card, runs[0], 0.05)
    assert [line.split(" | ")[0] for line in leaderboard(again)][-1] == f"| {runs[0].id}"
    assert len(leaderboard(again)) == 4
    assert pushed(again, runs[0], 0.05) == again


def test_the_leaderboard_has_the_figures_of_a_report(tmp_path: Path) -> None:
    from harness.report import numerals
    from harness.stats.intervals import Estimate
    from harness.store.card_tables import leaderboard_row

    manifest = Manifest("run-1", "sums", "m")
    for mean, low, high, cost in (
        (0.5, 0.33023, 0.66977, 1234.5), (0.99951, 0.9993, 0.9996, 0.0345), (1e-7, 0.0, 2e-7, 0.0),
        (-3.0, -4.0, 1e7, None),
    ):  # fmt: skip
        summary = {
            "planned": 1000,
            "scored": 1000,
            "reward": {"mean": mean, "ci95": [low, high]},
            "usage": {"cost": cost},
        }
        cells = leaderboard_row(manifest, summary).replace("\\", "").split(" | ")
        assert cells[3:6] == [
            numerals.score(mean), numerals.interval(Estimate(mean, low=low, high=high)), "1,000 of 1,000"
        ]  # fmt: skip
        assert cells[10] == numerals.dollars(cost)
    empty = leaderboard_row(manifest, None)
    assert empty.count(" – ") == 7 and empty.count(" unknown ") == 2


@for_each_row(
    "head",
    [
        "a: " + "[" * 200_000, "- " * 200_000, "\n".join(f"k{i}: &a{i} x" for i in range(30_000)), "a: " + "1" * 9_999,
        "a: 1" + ":1" * 200_000, "a: 2001-99-99", "x" * 500_001, "a: [" + "x," * 99_000 + "]",
    ],
)  # fmt: skip
def test_a_hostile_head_is_refused_before_anything_is_built_of_it(head: str) -> None:
    with pytest.raises(StoreError, match=r"YAML head .*by hand, then try again"):
        merge_config(head, {"config_name": "x"})


def test_a_head_is_found_and_its_comments_are_kept_in_linear_time() -> None:
    """Each of these took minutes by a pattern that looks again at every line."""
    assert split_card("---\n" + "\n" * 200_000) == ("", "---\n" + "\n" * 200_000)
    assert split_card("---\n\n---\nbody") == ("", "body")
    comments = "#\n" * 100_000
    merged = merge_config(f"configs:\n- config_name: a\n{comments}  x: y\n{comments}z: 1", {"config_name": "x"})
    assert merged.endswith(f"{comments}z: 1")


@for_each_row(
    ("rows", "size"), [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (999_999, "100K<n<1M"), (10**7, "n>10M")]
)
def test_a_cards_head_has_tags_and_a_size(rows: int, size: str) -> None:
    head = facts_yaml(["a/b", "gsm8k", "gsm8k"], rows)
    assert yaml.safe_load(head) == {"tags": ["bench", "a/b", "gsm8k"], "size_categories": [size]}
