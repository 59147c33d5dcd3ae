"""`bench runs` and `bench runs list`: which runs are shown, how many, and what is said when there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_samples import Bench, finished, run_at

OUTPUTS = Path("outputs")


def ids(out: str) -> list[str]:
    """The minutes of the runs in a list."""
    return [line[11:13] for line in out.splitlines() if line.startswith("20261121T09")]


@pytest.fixture
def several(here: Path) -> None:
    finished(OUTPUTS, minute=0, env_id="gsm8k", model="openai/gpt-4.1-mini")
    run_at(OUTPUTS, minute=1, env_id="math-python", model="reference/oracle", status="interrupted")
    run_at(OUTPUTS, minute=2, env_id="calc-rows", model="openai/gpt-4.1-mini", kind="eval", status="running")
    finished(OUTPUTS, minute=3, env_id="gsm8k", model="reference/oracle")


@pytest.mark.usefixtures("several")
def test_the_group_alone_lists(bench: Bench) -> None:
    alone, spelt_out = bench("runs"), bench("runs", "list")
    assert alone.code == 0 and alone.err == ""
    assert ids(alone.out) == ["18", "17", "16", "15"]
    assert alone == spelt_out
    assert "  go on: bench resume 20261121T091703Z-aaaa" in alone.out.splitlines()


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--env", "gsm8k"), ["18", "15"]),
        (("--env", "math", "--env", "calc"), ["17", "16"]),
        (("--model", "gpt", "--env", "g"), ["15"]),
        (("--state", "died"), ["17"]),
        (("--state", "done", "--state", "interrupted"), ["18", "16", "15"]),
        (("--kind", "eval"), ["17"]),
        (("--since", "2026-11-21T09:17"), ["18", "17"]),
        (("--until", "2026-11-21T09:17"), ["16", "15"]),
        (("--until", "2026-11-21"), ["18", "17", "16", "15"]),
        (("--since", "2026-11-21", "--until", "2026-11-21", "--model", "*oracle"), ["18", "16"]),
        (("-n", "2"), ["18", "17"]),
        (("--env", "gsm8k", "-n", "1"), ["18"]),
        (("-n", "0"), []),
    ],
)
def test_filters(bench: Bench, arguments: tuple[str, ...], expected: list[str]) -> None:
    done = bench("runs", *arguments)
    assert done.code == 0 and ids(done.out) == expected


def test_a_screen_of_runs_is_shown_and_the_others_are_counted(bench: Bench, here: Path) -> None:
    for minute in range(23):
        run_at(OUTPUTS, minute=minute, env_id="sums" if minute % 2 else "gsm8k")
    done = bench("runs")
    assert len(ids(done.out)) == 20
    assert done.err == "20 of 23 runs; -n -1 shows all\n"
    assert bench("runs", "-n", "3", "--env", "sums").err == "3 of 11 runs; -n -1 shows all\n"
    whole = bench("runs", "-n", "-1")
    assert (len(ids(whole.out)), whole.err) == (23, "")
    assert len(json.loads(bench("runs", "--json").out)["runs"]) == 23
    assert len(bench("runs", "-q").out.splitlines()) == 23


@pytest.mark.usefixtures("several")
def test_json_has_documented_keys(bench: Bench) -> None:
    done = bench("runs", "--json", "--state", "done", "-n", "1")
    assert done.err == "1 of 2 runs; -n -1 shows all\n"
    whole = json.loads(done.out)
    assert list(whole) == ["output_dir", "runs"] and whole["output_dir"] == "outputs"
    [run] = whole["runs"]
    assert list(run) == [
        "id", "path", "state", "note", "kind", "env_id", "name", "model", "created", "command", "suite", "parent",
        "derived", "planned", "summary", "problems",
    ]  # fmt: skip
    assert (run["id"], run["env_id"], run["summary"]["reward"]["mean"]) == ("20261121T091803Z-aaaa", "gsm8k", 0.5)


@pytest.mark.usefixtures("several")
def test_quiet_is_for_the_next_command(bench: Bench) -> None:
    done = bench("runs", "-q", "--env", "gsm8k")
    assert (done.out, done.err) == ("20261121T091803Z-aaaa\n20261121T091503Z-aaaa\n", "")


def test_without_runs_it_says_how_to_make_one(bench: Bench, here: Path) -> None:
    done = bench("runs")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("no runs under outputs/evals; make one (bench run gsm8k -n 5 -m reference/oracle)")
    assert json.loads(bench("runs", "--json", "-o", "elsewhere").out) == {"output_dir": "elsewhere", "runs": []}
    assert bench("runs", "-q").err == ""


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--env", "gsm9k"),
            "none of 4 runs matches the filters: --env gsm9k is not part of any name; did you mean gsm8k?",
        ),
        (
            ("--env", "gsm8k", "--model", "xxxx"),
            "--model xxxx is not part of any name; there are reference/oracle, openai/",
        ),
        (("--state", "stopped"), "none of 4 runs matches the filters"),
    ],
)
def test_a_filter_that_keeps_nothing_says_what_there_is(bench: Bench, arguments: tuple[str, ...], said: str) -> None:
    done = bench("runs", *arguments)
    assert (done.code, done.out) == (0, "") and said in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--state", "dide"), '--state dide: did you mean "died"?'),
        (("--kind", "agent"), "--kind agent: valid here: run, eval, multi"),
        (("--since", "monday"), "--since monday: give a date or time in UTC, such as 2026-11-21"),
        (("frob",), "unknown command 'frob'; use list, show, rm, or, to show a run: bench runs show frob"),
    ],
)
def test_what_is_wrong_is_refused(bench: Bench, arguments: tuple[str, ...], said: str) -> None:
    done = bench("runs", *arguments)
    assert (done.code, done.out) == (2, "") and said in done.err


def test_the_group_has_a_help_of_its_own(bench: Bench) -> None:
    done = bench("runs", "--help")
    assert done.code == 0
    assert [
        line.split()[0] for line in done.out.split("Commands:\n")[1].partition("\n\n")[0].splitlines() if line.strip()
    ] == [
        "list",
        "show",
        "rm",
    ]
    assert "--since" in bench("runs", "list", "-h").out


@pytest.mark.usefixtures("several")
def test_damage_is_a_row(bench: Bench, here: Path) -> None:
    for minute, name in (("15", "run.json"), ("18", "summary.json")):
        [path] = Path("outputs").glob(f"evals/*/*T09{minute}03Z-aaaa/{name}")
        path.write_text("{")
    done = bench("runs")
    assert done.code == 0 and ids(done.out) == ["18", "17", "16", "15"]
    said = " ".join(done.out.split())
    assert "summary.json: not JSON" in said and "run.json: not JSON" in said
    assert ids(bench("runs", "--state", "damaged").out) == ["15"]


@pytest.mark.usefixtures("several")
def test_runs_elsewhere_are_named_by_path(bench: Bench, here: Path) -> None:
    (here / "outputs").rename(here / "archive")
    done = bench("runs", "-o", "archive", "--state", "died")
    assert "  go on: bench resume archive/evals/calc-rows--openai--gpt-4.1-mini/20261121T091703Z-aaaa" in done.out
