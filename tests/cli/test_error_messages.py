"""Wrong uses of every front door, and all that each prints on stderr. `error_messages.txt` has the commands and the
expected text; `BENCH_WRITE_MESSAGES=1 pytest tests/cli/test_error_messages.py` writes the text anew, for review."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from eval_api import EXACT, Adder, rows_of
from multi_evals import Multi
from recorded_runs import make_run
from workplace import MODULES

import harness.agents
import harness.multi
from harness.cli.main import main

pytestmark = pytest.mark.plugins

EXPECTED = Path(__file__).with_name("error_messages.txt")
WRITE = bool(os.environ.get("BENCH_WRITE_MESSAGES"))

KEYS = ("PRIME_API_KEY", "BENCH_API_KEY", "HF_TOKEN", "OLLAMA_HOST", "GEMINI_API_KEY", "OPENROUTER_API_KEY")

FILES = {
    "unknown-table.toml": '[sav]\nsave_results = true\n[[eval]]\nid = "toy-env"\n',
    "unknown-key.toml": '[[eval]]\nid = "toy-env"\nnum_exmaples = 9\n',
    "group-key.toml": '[[eval]]\n[eval.env]\nenv_id = "toy-env"\nrollouts_per_exmple = 9\n',
    "wrong-type.toml": '[env]\nnum_examples = "ten"\n[[eval]]\nid = "toy-env"\n',
    "unknown-env.toml": '[[eval]]\nid = "toy-evn"\n',
    "same-on-hub.toml": 'save_to_hf_hub = true\n[[eval]]\nid = "toy-env"\n[[eval]]\nid = "toy-env"\nargs = {a = 1}\n',
    "syntax.toml": "[[eval]\n",
    "zero.toml": '[[eval]]\nid = "toy-env"\nrollouts_per_example = 0\n',
    "set-by-file.toml": '[[eval]]\nid = "toy-env"\nnum_examples = 100\nmax_failures = 3\n',
    "classic.toml": 'resume = true\nverbose = true\n[[eval]]\nid = "toy-env"\nprovider = "nobody"\n',
    "budget.toml": '[budget]\nmax_time = "soon"\n[[eval]]\nid = "toy-env"\n',
    "two-places.toml": '[[eval]]\nid = "toy-env"\n[eval.budget]\nmax_cost = 1\n',
    "until.toml": '[[eval]]\nid = "toy-env"\nuntil_ci = 0.1\nshuffle = false\n',
    "sweep.toml": '[[ablation]]\nid = "toy-env"\n[ablation.sweep]\nnum_exmaples = [1, 2]\n',
    "empty-sweep.toml": '[[ablation]]\nid = "toy-env"\n[ablation.sweep]\nnum_examples = []\n',
    "agent.toml": '[[eval]]\nagent = "my_agent:MyAgentLoop"\n',
    "agent-and-id.toml": '[[eval]]\nid = "toy-env"\nagent = "my_agent:MyAgentLoop"\n',
    "no-rows.toml": '[[eval]]\nid = "multi-eval"\n',
    "key-in-url.toml": '[[eval]]\nid = "toy-env"\nurl = "https://me:hunter2@example.com/v1"\n',
    "type.toml": '[[endpoint]]\nendpoint_id = "far"\nurl = "https://x.example/v1"\ntype = "messages"\n'
    '[[eval]]\nid = "toy-env"\nmodel = "far"\n',
    "replicas.toml": '[[endpoint]]\nendpoint_id = "far"\nurl = "https://x.example/v1"\nrpm = 0\n',
    "bare-model.toml": '[[model]]\nid = "a"\nmodelld = "b"\n',
    "no-model.toml": "[[model]]\n",
    "dear.toml": '[[model]]\nid = "far"\nbaseUrl = "https://models.example/v1"\napiKeyVar = "NOT_SET_HERE"\n',
    "bad-url.toml": '[[model]]\nid = "far"\nbaseUrl = "models.example"\n',
    "bad-tasks.json": '[{"prompt": "a", "expcted": 1}]',
    "twice.json": '[{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}]',
    "broken.json": "{",
    "broken_env.py": "def load_environment():\n    raise ValueError('the rows are away')\n",
    "silent_env.py": "from harness import Rubric, SingleTurnEnv\n"
    "def load_environment():\n    return SingleTurnEnv(dataset=[{'question': 'q'}], rubric=Rubric([]))\n",
    "short.jsonl": '{"system_prompt": "s", "user_prompt": "u"}\n',
}


def sections() -> dict[str, list[str]]:
    """The lines of each section of the expected text, by its heading."""
    found: dict[str, list[str]] = {}
    for line in EXPECTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        elif found:
            found[[*found][-1]].append(line)
    return found


@pytest.mark.parametrize("section", sections())
def test_error_messages(section: str, multi: Multi, evals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    for module in MODULES:
        (multi.cwd / f"{module}.py").write_text("raise RuntimeError('settings must not import an environment')\n")
    for name, text in FILES.items():
        (multi.cwd / name).write_text(text)
    monkeypatch.syspath_prepend(str(multi.cwd))
    lines = sections()[section]
    run = made_run(multi) if any("RUN" in line for line in lines) else None
    found: list[str] = []
    for command in [line for line in lines if line.startswith(("$ ", "! ", ">>> ", ">>>! "))]:
        found += [command, *after(command, multi, run, monkeypatch), ""]
    if WRITE:
        rewritten = {**sections(), section: found}
        parts = [f"## {name}\n" + "\n".join(body).strip("\n") + "\n" for name, body in rewritten.items()]
        EXPECTED.write_text("\n".join(parts), encoding="utf-8")
    assert "\n".join(found).strip() == "\n".join(lines).strip()


def made_run(multi: Multi) -> Path:
    """A recorded run of four rollouts."""

    def write(name: str, text: str) -> Path:
        path = multi.cwd / name
        path.write_text(text)
        return path

    return make_run(multi.bench, write)


def after(command: str, multi: Multi, run: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a command prints on stderr, and its exit code."""
    asked = len(multi.model.requests)
    is_check = not command.startswith(("! ", ">>>! "))
    text = command.partition(" ")[2].replace(" URL", f" {multi.model.url}")
    text = text.replace("RUN", str(run))
    multi.capture.readouterr()
    if command.startswith(">>>"):
        result = _raised(text, multi.model.url)
        multi.capture.readouterr()
    else:
        words = shlex.split(text)
        with monkeypatch.context() as changed:
            while words and "=" in words[0] and words[0].partition("=")[0].isupper():
                name, _, value = words.pop(0).partition("=")
                changed.setenv(name, value)
            code = main(words)
        result = f"{multi.capture.readouterr().err}exit {code}"
    if not is_check:  # makes what the next wrong uses need
        assert result.endswith("exit 0") or result.startswith("no error"), result
        return []
    assert len(multi.model.requests) == asked, "a wrong use is refused before anything is sent"
    result = re.sub(r" Available environments: .*", "", result)  # the environments that are installed here
    if run is not None:
        result = result.replace(str(run), "RUN").replace(run.name, "ID")
    return result.replace(str(multi.cwd), "CWD").replace(multi.model.url, "URL").splitlines()


def _raised(expression: str, url: str) -> str:
    """The error of a Python expression, awaited if it can be."""
    names = {name: getattr(harness.multi, name) for name in harness.multi.__all__}
    names |= {name: getattr(harness.agents, name) for name in harness.agents.__all__}
    client = harness.agents.ExternalLLMClient("x", api_base=url)
    names |= {"rows_of": rows_of, "runner": lambda: harness.agents.EvalRunner(Adder(), client, [EXACT])}
    try:
        value = eval(expression, names)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"no error: {value!r:.200}"
