"""Text of strangers, driven through everything that shows or names something: nothing steers the terminal, nothing is
hidden, nothing is written outside the output folder. tests/report/test_text.py is about the filter itself."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop
from loopback_model import LoopbackModel
from store_samples import example
from tables import for_each_row
from terminals import read_all

from harness.core.errors import ConfigError
from harness.plugins.exports.inspect_sample import SampleIds
from harness.store.rows import RowShape

NASTY = (
    "\x1b[2J\x1b]0;pwned\x07\x1b]52;c;cHduZWQ=\x1b\\\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\\x9b31m\x90dcs\x9c"
    "\u202eevil\u2066\u200b\u061c\u2028\U000e0041[red]boo[/red] </script><img src=x onerror=alert(1)> "
    "[a](javascript:alert(1)) ![i](http://evil.example/x.png) `code` | =1+1\r\nfake: all is well\x00\x08"
)
"""Everything that a terminal, a page or a table may fall for."""

FORBIDDEN = re.compile(
    "[\x00-\x06\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f"  # all of C0 but bell, tab, newline, return and escape; C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
ESCAPES = re.compile(r"\x1b(?!\[[0-9;]*m|\[\?25[lh]|\[2K|\[\d*A|\[1?[GJ]|\r)")
"""What begins none of the sequences by which the live table draws itself: colours, cursor, a line erased."""


def quoted(text: str) -> str:
    """A text as TOML writes it."""
    return '"' + "".join(char if char.isalnum() else f"\\U{ord(char):08X}" for char in text) + '"'


HOSTILE = f"""
import logging
from harness import Rubric, SingleTurnEnv
NASTY = {NASTY!a}
ID = NASTY.replace(chr(0), "")
HALF = NASTY + {chr(0xD800)!a}

def correct(completion, answer):
    if "broken" in answer:
        raise ValueError(NASTY)
    logging.getLogger(NASTY).warning("logged " + NASTY)
    return 1.0

correct.__name__ = "correct" + NASTY

class Hostile(SingleTurnEnv):
    async def setup_state(self, state):
        state["said"] = HALF
        if "stopped" in str(state["answer"]):
            raise RuntimeError(NASTY)

    def reference_reply(self, example, messages):
        return NASTY

def load_environment(note="", fail=False):
    if fail:
        raise RuntimeError(NASTY)
    rows = [
        dict(example_id=kind + ID, question=NASTY, answer=kind + HALF, task=HALF, info={{NASTY: HALF}})
        for kind in ("fine", "broken", "stopped", "../../../up")
    ]
    return Hostile(dataset=rows, rubric=Rubric([correct]), system_prompt=NASTY)
"""

DRIVER = """
import glob, json, os, sys
from harness.cli.main import main

def named(word):
    if not word.startswith("@run "):
        return word
    runs = sorted(glob.glob("outputs/evals/*/*/run.json"), key=lambda path: os.stat(path).st_mtime_ns)
    return os.path.dirname(runs[int(word[5:])])

for number, arguments in enumerate(json.loads(sys.argv[1])):
    arguments = [named(word) for word in arguments]
    sys.stdout.flush(); sys.stderr.flush()
    print(f"\\n@@{number}@@", flush=True)
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    sys.stdout.flush(); sys.stderr.flush()
    print(f"\\n@@code {code}@@", flush=True)
"""


class Rude(LoopbackModel):
    """Refuses the model `refused`, and says the worst to all others, with a tool call and a thought."""

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        if body["model"] == "refused":
            return 403, {"error": {"message": NASTY, "code": NASTY, "type": NASTY}}
        calls = [{"id": NASTY, "type": "function", "function": {"name": NASTY, "arguments": NASTY}}]
        message = {"role": "assistant", "content": NASTY, "reasoning_content": NASTY, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return 200, {"id": NASTY, "object": "chat.completion", "model": NASTY, "choices": [choice], "usage": usage}


def in_terminal(shop: Workshop, commands: list[list[str]]) -> Iterator[tuple[list[str], int, str]]:
    """Run `bench` commands one after the other under a pseudo-terminal; each with its exit code and all it wrote."""
    master, slave = pty.openpty()
    environ = shop.environ(TERM="xterm-256color", COLUMNS="100", LINES="40")
    del environ["NO_COLOR"]
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(commands)],
        cwd=shop.cwd, env=environ, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    said = read_all(master)
    assert child.wait(60) == 0, said
    parts = re.split(r"@@(\d+)@@", said)[1:]
    assert parts[::2] == [str(number) for number in range(len(commands))], said
    for command, part in zip(commands, parts[1::2], strict=True):
        words, code = part.rsplit("@@code ", 1)
        yield command, int(code.partition("@@")[0]), words


def harmful(text: str) -> list[str]:
    """Every place at which a terminal would obey, or hide something, with what stands around it."""
    found = [*FORBIDDEN.finditer(text), *ESCAPES.finditer(text), *re.finditer(r"\x1b\[2J|\x07", text)]
    return [ascii(text[max(0, at.start() - 40) : at.end() + 20]) for at in found]


@pytest.fixture
def hostile(shop: Workshop) -> Workshop:
    shop.write("hostile.py", HOSTILE)
    tasks = [
        {"id": "task" + NASTY, "prompt": NASTY, "expected": NASTY},
        {"id": "other", "prompt": "2", "expected": "2"},
    ]
    shop.write("tasks.json", json.dumps(tasks))
    shop.write("suite.toml", f'id = "./hostile.py"\nmodel = "reference/oracle"\nargs = {{ note = {quoted(NASTY)} }}\n')
    shop.write("rude.toml", f'id = "./hostile.py"\nmodel = {quoted("m" + NASTY)}\n')
    shop.write("unknown.toml", f'[[eval]]\nid = "./hostile.py"\n{quoted("key" + NASTY)} = 1\n')
    return shop


@pytest.mark.slow
def test_nothing_steers_the_terminal(hostile: Workshop) -> None:
    runs: list[tuple[int, list[str]]] = [
        (0, ["run", "./hostile.py", "-m", "reference/oracle", "-n", "-1", "-r", "1", "-C", "said"]),
        (0, ["run", "suite.toml", "-n", "1", "-q", "--json"]),
        (0, ["run", "suite.toml", "--dry-run"]),
        (0, ["run", "suite.toml", "--dry-run", "--json"]),
        (0, ["runs"]),
        (0, ["runs", "--json"]),
        (0, ["runs", "show", "latest"]),
        (0, ["runs", "show", "latest", "--json"]),
        (0, ["runs", "show", "latest", "--settings"]),
        (0, ["runs", "show", "latest", "--example", "fine" + NASTY]),
        (0, ["export", "latest", "-f", "jsonl", "-o", "-"]),
        (0, ["export", "latest", "-f", "csv", "-o", "-"]),
        (0, ["rescore", "latest"]),
        (0, ["replay", "latest", "-q"]),
        (0, ["compare", "@run 0", "@run -1", "--cluster", "task"]),
        (0, ["compare", "@run 0", "@run -1", "--json"]),
        (2, ["compare", "@run 0", "@run -1", "--cluster", "no such" + NASTY]),
        (2, ["compare", "@run 0", "@run -1", "--metric", NASTY]),
        (2, ["compare", "@run 0", NASTY]),
        (1, ["gate", "@run 0", "--baseline", "@run -1", "--margin", "0.1", "--junit", "junit.xml"]),
        (2, ["power", "--from", "@run 0", "--mde", "0.1"]),
        (0, ["report", "@run 0", "latest", "--title", NASTY, "-o", "page.html"]),
        (0, ["report", "@run 0", "-o", "-", "--format", "md"]),
        (2, ["report", NASTY]),
        (2, ["report", "latest", "-o", NASTY]),
        (0, ["run", "./hostile.py", "-m", "reference/oracle", "-n", "-1", "-r", "1", "--workers", "1"]),
        (0, ["run", "./hostile.py", "-m", "reference/oracle", "--until-ci", "0.5", "-n", "-1", "-r", "1"]),
        (0, ["env", "info", "./hostile.py"]),
        (0, ["env", "info", "./hostile.py", "--json"]),
        (2, ["run", "rude.toml"]),
        (2, ["run", "unknown.toml"]),
        (2, ["run", "./hostile.py", "-m", "reference/" + NASTY.replace("\x00", "")]),
        (2, ["runs", "show", "latest", "--example", "no such" + NASTY.replace("\x00", "")]),
    ]
    failing: list[list[str]] = [
        ["run", "./hostile.py", "-a", "fail=true", "-m", "reference/oracle"],
        ["run", "./hostile.py", "-a", "fail=true", "-m", "reference/oracle", "-v"],
        ["run", "./hostile.py", "-a", "fail=true", "-m", "reference/oracle", "--workers", "1"],
        ["env", "check", "./hostile.py"],
        ["doctor", "./hostile.py", "--offline"],
    ]
    with Rude() as model:
        asked = ["-b", model.url, "-k", ""]
        runs += [
            (0, ["run", "./hostile.py", "-m", "talks", *asked, "-n", "1", "-r", "1"]),
            (0, ["runs", "show", "latest", "--example", "fine" + NASTY]),
            (0, ["compare", "@run 0", "latest", "--transcripts", "1"]),
            (0, ["multi", "tasks.json", "-m", "talks", "-m", "talks2", "-b", model.url, "--persist"]),
            (0, ["multi", "show", "latest"]),
            (0, ["multi", "runs"]),
        ]
        failing += [
            ["run", "./hostile.py", "-m", "refused", *asked, "-n", "1"],
            ["multi", "tasks.json", "-m", "refused", "-b", model.url],
        ]
        commands = [[word.replace("\x00", "") for word in words] for words in (*[words for _, words in runs], *failing)]
        seen = list(in_terminal(hostile, commands))
    for (wanted, _), (command, code, said) in zip([*runs, *((1, words) for words in failing)], seen, strict=True):
        assert harmful(said) == [], command
        assert "Traceback" not in said or "-v" in command, command
        if command not in failing:
            assert code == wanted, (command, said)
        assert len(said.strip()) > 10, command
    shown = "".join(said for *_, said in seen)
    assert "[red]boo[/red]" in shown, "markup is text"


def test_nothing_is_hidden_in_a_card(hostile: Workshop) -> None:
    done = hostile.bench("run", "suite.toml", "-n", "-1", "-r", "1", "-q", "--json")
    assert done.code == 0, done.err
    assert harmful(done.out) == [] and json.loads(done.out)
    card = next((hostile.cwd / "outputs" / "evals").glob("*/README.md")).read_text()
    assert FORBIDDEN.findall(card) == []
    prose = re.sub(r"^(`{3,}).*?^\1$", "", card, flags=re.MULTILINE | re.DOTALL)
    assert "<img" not in prose and "</script>" not in prose
    assert not re.search(r"(?<!\\)\]\((javascript|http)", prose)


NAMES = [
    "../../../../up", "..", ".", "/etc/passwd", "a/../../b", "CON", "nul.txt", "x" * 300, "ü\u0308 ключ", "a\\b:c*d?e",
    "-rf", "~", "%2e%2e%2f", "name.", " blank ", "$(touch made)", "`touch made`", "'; touch made; '",
]  # fmt: skip


@pytest.mark.slow
def test_no_name_leaves_the_output_folder(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "deep" / "er" / "down")
    shop.write("hostile.py", HOSTILE)
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    with Rude() as model:
        entry = '[[eval]]\nid = "./hostile.py"\nnum_examples = 2\nrollouts_per_example = 1\nkey = ""\n'
        entry += f'url = "{model.url}"\n'
        suite = [f"{entry}name = {quoted(name)}\nmodel = {quoted(name)}\n" for name in NAMES]
        shop.write("suite.toml", "".join(suite))
        done = shop.bench("run", "suite.toml", "-q", "--json")
    assert done.code == 0, done.err
    assert [run["model"] for run in done.runs] == NAMES
    for number, run in enumerate(done.runs):
        assert (shop.cwd / run["path"]).resolve().is_relative_to(shop.cwd / "outputs" / "evals"), run["path"]
        for form in ("inspect", "every-eval-ever", "verifiers") if number % 6 == 0 else ():
            exported = shop.bench("export", run["path"], "-f", form, "--json")
            assert exported.code == 0, exported.err
            for path in json.loads(exported.out)["paths"]:
                assert (shop.cwd / path).resolve().is_relative_to(shop.cwd), path
    made = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts} - before
    outside = [path for path in made if not path.is_relative_to(shop.cwd) and not path.is_relative_to(shop.logs)]
    assert outside == []
    assert not [path for path in made if path.name == "made"]
    for path in (shop.cwd / "outputs").rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,255}", path.name), path
        assert path.name.partition(".")[0].upper() not in {"CON", "NUL", "AUX", "PRN", "COM1", "LPT1"}, path


def test_members_of_an_archive_stay_in_their_folder(hostile: Workshop) -> None:
    done = hostile.bench("run", "./hostile.py", "-m", "reference/oracle", "-n", "-1", "-r", "1", "-q")
    assert done.code == 0, done.err
    assert hostile.bench("export", "latest", "-f", "inspect", "-o", "log.eval").code == 0
    source = """
        import json, zipfile
        print(json.dumps(zipfile.ZipFile("log.eval").namelist()))
    """
    names = hostile.python(textwrap.dedent(source))
    assert len(names) == 7  # four samples, and three of the log itself
    for name in names:
        assert ".." not in Path(name).parts and not name.startswith("/") and "\\" not in name, name
        assert FORBIDDEN.findall(name) == [] and "\n" not in name, ascii(name)
        assert name.startswith(("samples/", "_journal/")) or name in ("header.json", "summaries.json"), name


@for_each_row(
    ("own", "named"),
    [
        ("../../up", "_/_/up"), ("/etc/passwd", "_etc/passwd"), ("a/../b", "a/_/b"), ("..", "_"), (".", "_"),
        ("a/./b", "a/_/b"), ("..\\..\\up", ".._.._up"), ("a/..", "a/_"), ("...", "..."), ("math/1..2", "math/1..2"),
    ],
)  # fmt: skip
def test_an_id_is_no_way_out_of_an_archive(own: str, named: str) -> None:
    assert SampleIds().of(example(example_id=own)) == named


def test_a_metric_that_no_file_can_name_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^metric 'a\\ud800' has a lone surrogate, which no file can store; rename it$"
    ):
        RowShape("env", "model", ("a\ud800",))


def test_a_folder_of_runs_from_elsewhere_is_only_looked_at(hostile: Workshop) -> None:
    """Run folders may come from anybody: their manifest says what it likes."""
    done = hostile.bench("run", "./hostile.py", "-m", "reference/oracle", "-n", "1", "-r", "1", "-q", "--json")
    assert done.code == 0, done.err
    manifest_path = hostile.cwd / done.run["path"] / "run.json"
    manifest = json.loads(manifest_path.read_text())
    up = "../../../../../up"
    manifest |= {"id": up, "env_id": up + NASTY, "model": NASTY, "name": NASTY, "command": NASTY, "suite": up}
    manifest |= {"note": NASTY, "status": "stopped", "metric_names": [NASTY], "created": NASTY}
    manifest_path.write_text(json.dumps(manifest))
    before = {path for path in hostile.cwd.parent.rglob("*")}
    for command in (
        ["runs"],
        ["runs", "show", "latest"],
        ["export", "latest", "-f", "csv"],
        ["runs", "rm", "latest", "-y"],
    ):
        shown = hostile.bench(*command)
        assert harmful(shown.out + shown.err) == [] and "Traceback" not in shown.err, command
    made = {path for path in hostile.cwd.parent.rglob("*")} - before
    assert [
        path for path in made if not path.is_relative_to(hostile.cwd) and not path.is_relative_to(hostile.logs)
    ] == []
    assert not manifest_path.exists() and hostile.cwd.exists()


def test_the_tests_see_what_they_look_for() -> None:
    assert len(harmful(NASTY)) >= 12
    assert harmful("\x1b[1;31mours\x1b[0m\x1b[?25l\x1b[2K\x1b[3A\r\nplain 数学") == []
