"""`bench doctor` as it is typed: what it prints, what it sends, how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from curt_server import CurtServer
from run_samples import Bench

KEY = "canary-key-0123456789"


@pytest.fixture
def bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """`bench`, on a machine without proxies and certificates of its own, 80 columns wide."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.endswith(("CA_BUNDLE", "_API_KEY")) or name.startswith("SSL_CERT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    return bench


def found(text: str, name: str) -> list[tuple[str, str]]:
    """Status and words of all findings of a name."""
    return [(each["status"], each["says"]) for each in json.loads(text)["findings"] if each["name"] == name]


def test_a_machine_that_is_well_is_told_so(bench: Bench) -> None:
    with CurtServer() as server:
        done = bench("doctor", "-m", "m", "-b", server.url)
        assert len(server.asked) == 1
    assert (done.code, done.err) == (0, f"asking: one message and one token to {server.host} for m\n")
    lines = done.out.splitlines()
    assert lines[0] == "python"
    assert lines[-1].startswith("no problems, ")
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []  # a long path stays in one piece
    [line] = [line for line in lines if f"m at {server.host}" in line]
    assert line.startswith(f"  ok       m at {server.host}: replied in ")


def test_a_problem_is_exit_code_1_and_stands_with_what_to_do(bench: Bench) -> None:
    with CurtServer(401, f"bad key {KEY}") as server:
        os.environ["MY_KEY"] = KEY
        try:
            done = bench("doctor", "-m", "m", "-b", server.url, "-k", "MY_KEY", "-q")
        finally:
            del os.environ["MY_KEY"]
    assert done.code == 1
    assert "\nendpoints\n" in f"\n{done.out}"
    assert "  problem  m at " in done.out
    assert "           → set MY_KEY to a key that " in done.out
    assert "  ok " not in done.out
    assert done.out.splitlines()[-1].startswith("1 problem, ")
    assert KEY not in done.out + done.err
    assert KEY[:12] not in done.out + done.err


def test_a_program_reads_the_same_as_json_and_nothing_else(bench: Bench, here: Path) -> None:
    (here / ".env").write_text(f'MY_KEY="{KEY}"\nOTHER=x\n')
    with CurtServer() as server:
        os.environ["MY_KEY"] = "another-0123456789"
        try:
            done = bench("doctor", "-m", "m", "-b", server.url, "-k", "MY_KEY", "--json")
        finally:
            del os.environ["MY_KEY"]
            os.environ.pop("OTHER", None)
    whole = json.loads(done.out)
    assert (done.code, whole["ok"], whole["target"], whole["offline"], whole["problems"]) == (0, True, None, False, 0)
    assert whole["requests"] == [f"one message and one token to {server.host} for m"]
    assert [set(each) for each in whole["findings"]] == [{"area", "name", "status", "says", "fix"}] * len(
        whole["findings"]
    )
    assert found(done.out, "MY_KEY") == [
        ("ok", f"set; sent to {server.host}"),
        ("note", "the environment and .env have different values; the one in the environment is used"),
    ]
    assert KEY not in done.out and "another-" not in done.out


@pytest.mark.slow
def test_the_runs_of_a_target_are_looked_at(bench: Bench, here: Path) -> None:
    (here / "mine.py").write_text("def load_environment(): ...\n")
    done = bench("doctor", "./mine.py,toy-evn", "-m", "reference/oracle", "--json")
    assert (done.code, done.err) == (1, "")
    assert json.loads(done.out)["requests"] == []
    [[status, says]] = found(done.out, "./mine.py")
    assert (status, says.startswith("not installed; used from its files; imported in")) == ("ok", True)
    [[status, says]] = found(done.out, "toy-evn")
    assert (status, says) == ("problem", "no environment 'toy-evn' is installed.")
    near = bench("doctor", "gsm8", "-m", "reference/oracle", "--json")
    [mistyped] = [each for each in json.loads(near.out)["findings"] if each["name"] == "gsm8"]
    assert mistyped["says"] == "no environment 'gsm8' is installed"
    assert mistyped["fix"].startswith("did you mean 'gsm8k'?")
    assert found(done.out, "reference/oracle") == [("ok", "is served by bench itself: no endpoint and no key")]


def test_an_environment_that_cannot_be_imported_is_a_problem(bench: Bench) -> None:
    done = bench("doctor", "toy-env", "-m", "reference/oracle", "--json")
    [[status, says]] = found(done.out, "toy-env")
    assert (done.code, status) == (1, "problem")
    assert "settings must not import an environment" in says


def test_what_a_hostile_endpoint_says_does_nothing_to_the_terminal(bench: Bench) -> None:
    with CurtServer(401, "\x1b[2J\x1b]0;title\x07\u202eevil [bold]") as server:
        done = bench("doctor", "-m", "m", "-b", server.url)
    assert done.code == 1
    assert not {"\x1b", "\x07", "\u202e"} & set(done.out + done.err)
    assert "[bold]" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--timeout", "0"), "--timeout 0: must be more than 0 and at most 600 seconds"),
        (("--timeout", "nan"), "--timeout nan: must be more than 0"),
        (("--set", "model.model=x"), "--set changes the settings of runs; name the runs with TARGET as well"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], words: str, bench: Bench) -> None:
    done = bench("doctor", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
