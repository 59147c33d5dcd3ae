"""Does what a page tells its readers to do, in a folder of its own: the commands in a shell, the Python in an
interpreter, against `bench serve` on a free port and a stand-in Hub that has the datasets of the documentation.
A page that installs something gets a virtual environment of its own, which sees what is installed here.

Only what a reader has to choose is replaced: the port, the files in `PATH/`, and the ids of runs."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nursery
from bench_runs import served
from documented import ROOT, Step
from hub_repos import Entry, Hub, Repo
from hub_runs import TOKEN, hub_env
from hub_server import HubServer

from humaneval.sample import PROBLEMS as PROGRAMS

PATIENCE = 120.0
"""Seconds after which a documented command has gone wrong."""

QUESTIONS = ROOT.parent / "shared" / "data" / "gsm8k" / "test.jsonl"
"""The 1,319 questions, which are not part of the repository."""

MATHEMATICS = [{"problem": "What is $1 + 1$?", "answer": "2", "solution": "\\boxed{2}"}]

ACCOUNT, ORGANISATION = "you", "my-org"
"""Who pushes, in the documentation."""

_ADDRESS = re.compile(r"http://(?:localhost|127\.0\.0\.1):80\d\d/v1")
_RUN = re.compile(r"(?P<folder>(?:[\w.-]+/)*)(?P<id>\d{8}T\d{6}Z-[a-z0-9]{4})")

_CARD = """---
configs:
- config_name: main
  data_files:
  - split: test
    path: main/test-*
---
"""

_TASKS = b"name: GSM8K\ntasks:\n- id: gsm8k\n  config: main\n  split: test\n"
"""What makes a dataset a benchmark."""


def problems() -> list[dict[str, str]]:
    """The test split of `openai/gsm8k`, or what stands in for it: on the Hub and in `PATH/test.jsonl` alike."""
    if QUESTIONS.exists():
        return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    from gsm8k.sample import problems as sample

    return [{"question": str(row["question"]), "answer": str(row["answer"])} for row in sample()]


def stock(hub: Hub) -> None:
    """Put on `hub` what the documentation takes for granted: an account, a model, and the datasets that environments
    read."""
    hub.account(TOKEN, ACCOUNT, orgs=(ORGANISATION,))
    _put(hub, "openai/gsm8k", problems())
    hub.repos["openai/gsm8k"].add("a benchmark", {"eval.yaml": Entry(_TASKS)})
    hub.model(f"{ORGANISATION}/my-model")
    _put(hub, "openai/openai_humaneval", [*PROGRAMS])
    _put(hub, "HuggingFaceH4/MATH-500", MATHEMATICS)
    question = {"question": "Which is the femur?", "choices": ["arm", "thigh", "skull", "hand"], "answer": 1}
    _put(hub, "cais/mmlu", [{**question, "subject": "anatomy"}], config="anatomy")
    gated = {"Question": "Which is the femur?", "Correct Answer": "thigh", "Record ID": "r1"}
    gated |= {f"Incorrect Answer {number}": word for number, word in enumerate(("arm", "skull", "hand"), 1)}
    gated |= {"High-level domain": "Biology", "Subdomain": "Anatomy"}
    _put(hub, "Idavidrein/gpqa", [gated], config="gpqa_diamond", split="train")


def _put(hub: Hub, name: str, rows: list[dict[str, Any]], config: str = "main", split: str = "test") -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    data = Entry(buffer.getvalue(), lfs=True)
    hub.large[data.sha256] = data.data
    hub.repos[name] = repo = Repo(name, private=False)
    card = _CARD.replace("main", config).replace("test", split)
    repo.add("the rows", {"README.md": Entry(card.encode()), f"{config}/{split}-00000-of-00001.parquet": data})


class Session:
    """One reader of one page.

    Args:
        folder: Where the reader works; made if missing.
        hub: A stand-in Hub, stocked.
        default: Where `openai/gpt-4.1-mini` answers: see `plain_server`.
        installs: Whether the page installs something: then the interpreter is that of a new virtual environment.
    """

    def __init__(self, folder: Path, hub: HubServer, default: str, *, installs: bool = False) -> None:
        self._python = _own_python(folder / "venv") if installs else Path(sys.executable)
        self.cwd = folder / "work"
        for name in ("configs", "examples"):
            shutil.copytree(ROOT / name, self.cwd / name)
        self._folder = folder
        self._hub = hub
        self._shims: list[Path] = []
        self._open = ExitStack()
        if nursery.is_alike(self.environ()):
            self._shims.append(folder / "forked")
            (folder / "forked").mkdir()
            own = self._open.enter_context(nursery.Nursery(self._python)) if installs else nursery
            own.write_shim(folder / "forked" / "bench")
        self._url = default
        self.printed = ""
        """All that was printed so far, errors included."""

    def __enter__(self) -> Self:
        # The built-in model's endpoint is far away and wants a key; the default one answers to the same name.
        registry = self.cwd / "configs" / "endpoints.toml"
        own = f'\n[[endpoint]]\nendpoint_id = "openai/gpt-4.1-mini"\nurl = "{self._url}"\n'
        registry.write_text(_ADDRESS.sub(self._url, registry.read_text()) + own)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def do(self, step: Step) -> None:
        """Do one step; what is only shown must have been printed before."""
        if step.kind == "file":
            (self.cwd / step.name).write_text(_ADDRESS.sub(self._url, step.text) + "\n")
        elif step.kind == "python":
            self._run(step, [str(self._python), "-c", self._adapt(step.text)])
        elif step.text.startswith("bench serve"):
            words = self._adapt(step.text).split(" ", 2)[2]
            self._url = self._serve(shlex.split(re.sub(r"--port 80\d\d", "", words)))
        else:
            self._run(step, ["bash", "-c", self._adapt(step.text)])

    def environ(self) -> dict[str, str]:
        """What a command of this reader runs with: eighty columns, no key, and no Hub but the stand-in."""
        environ = hub_env(self._hub, self._folder / "hf")
        for name in ("COLUMNS", "PRIME_API_KEY", "OPENAI_API_KEY", "FORCE_COLOR"):
            environ.pop(name, None)
        places = [*self._shims, self._python.parent, Path(sys.executable).parent, environ["PATH"]]
        path = os.pathsep.join(map(str, places))
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # pip reads this 0 as --no-build-isolation
        return {**environ, **offline, "PATH": path, "PYTHONPATH": str(self.cwd), "NO_COLOR": "1"}

    def type(self, text: str) -> subprocess.CompletedProcess[str]:
        """Type a command, as a page has it, whatever comes of it."""
        return self._start(["bash", "-c", self._adapt(text)])

    def _run(self, step: Step, command: list[str]) -> None:
        done = self._start(command)
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, f"{step.where}: {step.text}\nexit code {done.returncode}\n{said}"
        assert "Traceback" not in said, f"{step.where}: {step.text}\n{said}"
        self.printed += said

    def _start(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.cwd, env=self.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    def _serve(self, words: list[str]) -> str:
        command = ["bench", "serve", "--port", "0", *words]
        return self._open.enter_context(served(command, self.cwd, self.environ())).url

    def _adapt(self, text: str) -> str:
        text = _ADDRESS.sub(self._url, text)
        if "PATH/test.jsonl" in text:
            text = text.replace("PATH/test.jsonl", str(self._questions()))
        for name, rows in (("math.jsonl", MATHEMATICS), ("HumanEval.jsonl.gz", PROGRAMS)):
            if f"PATH/{name}" in text:
                data = "".join(json.dumps(row) + "\n" for row in rows).encode()
                path = self._folder / name
                path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
                text = text.replace(f"PATH/{name}", str(path))
        return _RUN.sub(lambda match: match["folder"] + self._newest(match["folder"]), text)

    def _questions(self) -> Path:
        path = self._folder / "test.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in problems()))
        return path

    def _newest(self, folder: str) -> str:
        """The id of the newest run, in `folder` if one is named."""
        runs = sorted((self.cwd / (folder or "outputs")).rglob("run.json"), key=lambda path: path.stat().st_mtime_ns)
        assert runs, f"no run in {folder or 'outputs'} that a command could mean"
        return runs[-1].parent.name


@contextmanager
def plain_server(folder: Path) -> Generator[str]:
    """The url of a server of plain text, which any environment scores: a documented server would know one environment's
    questions only. It keeps nothing, so that it may serve many readers."""
    with served(["bench", "serve", "--port", "0"], folder, os.environ) as server:
        yield server.url


def shape(line: str) -> str:
    """A line without what differs from run to run: figures, ids and widths."""
    line = _RUN.sub(lambda match: f"{match['folder']}ID", line)
    line = re.sub(r"\d[\d.,]*[kM]?", "#", line)
    return " ".join(re.sub(r"─+", "─", line).split())


def _own_python(venv: Path) -> Path:
    """The interpreter of a new virtual environment that has bench as a dependency has it, and its command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=PATIENCE)
    [packages] = venv.glob("lib/python*/site-packages")
    (packages / "bench.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python, command = venv / "bin" / "python", venv / "bin" / "bench"
    command.write_text(f"#!{python}\nimport sys\nfrom harness.cli.main import main\nsys.exit(main())\n")
    command.chmod(0o755)
    return python
