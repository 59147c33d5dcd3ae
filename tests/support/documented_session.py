"""Do what a page tells its readers, in a folder of its own: type the commands into a shell and run the Python, against
`bench serve` on free ports and a stand-in Hub with the datasets of the documentation. A page that installs something
gets a virtual environment of its own, which sees what is installed here.

The folder is like the root of a fresh clone, where `docs/README.md` has its readers type. Commands are typed as they
stand, one by one, each in the folder and with the variables that those before left, and without `PYTHONPATH`: with it,
a file in that folder would pass for an installed package. Everything that differs from what a reader has stands in
`STAND_INS`."""

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

STAND_INS = {
    "http://localhost:80NN/v1": "ports may be taken: `bench serve` gets a free one, which commands and files then name",
    "http://localhost:8000/v1 of a page that starts no server": "is the reader's own: `bench serve` plays it",
    "openai/gpt-4.1-mini": "needs a key: the registry of endpoints names a local server for it",
    "huggingface.co": "needs a token and an account: HF_ENDPOINT names a stand-in on this machine",
    "PATH/": "is the reader's own folder of datasets: three files stand in it",
    "the package index": "needs a network: pip builds and installs without it, and looks for no dependency",
}
"""What is another thing here than for a reader, and why."""

_ADDRESS = re.compile(r"http://(?:localhost|127\.0\.0\.1):(?P<port>80\d\d)/v1")
_NO_SERVER = "http://127.0.0.1:9/v1"
"""A documented port on which nothing was started."""

_ID = r"\d{8}T\d{6}Z-[a-z0-9]{4}"

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
        (self.cwd / "environments").mkdir()
        self._put_files(self.cwd / "PATH")
        self._folder = folder
        self._hub = hub
        self._shims: list[Path] = []
        self._open = ExitStack()
        if nursery.is_alike(self.environ()):
            self._shims.append(folder / "forked")
            (folder / "forked").mkdir()
            own = self._open.enter_context(nursery.Nursery(self._python)) if installs else nursery
            own.write_shim(folder / "forked" / "bench")
        self._urls = {"8000": default}
        self._block = 0
        self.printed = ""
        """All that the commands of the last block printed, errors included."""

    def __enter__(self) -> Self:
        registry = self.cwd / "configs" / "endpoints.toml"
        own = f'\n[[endpoint]]\nendpoint_id = "openai/gpt-4.1-mini"\nurl = "{self._urls["8000"]}"\n'
        registry.write_text(self._adapt(registry.read_text()) + own)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def do(self, step: Step) -> None:
        """Do one step: save a file, start a server, or run a command or Python to its end."""
        if step.kind in ("command", "python") and step.block != self._block:
            self._block, self.printed = step.block, ""
        if step.kind == "file":
            (self.cwd / step.name).parent.mkdir(parents=True, exist_ok=True)
            (self.cwd / step.name).write_text(self._adapt(step.text) + "\n")
        elif step.kind == "python":
            self._run(step, [str(self._python), "-c", self._adapt(step.text)])
        elif step.text.startswith("bench serve"):
            self._serve(shlex.split(step.text, comments=True)[2:])
        else:
            self._run(step, self._shell(step.text))

    def environ(self) -> dict[str, str]:
        """What a command of this reader runs with: eighty columns, no key, and no Hub but the stand-in."""
        environ = hub_env(self._hub, self._folder / "hf")
        environ = {name: value for name, value in environ.items() if not name.endswith("_API_KEY")}
        for name in ("COLUMNS", "FORCE_COLOR", "PYTHONPATH"):
            environ.pop(name, None)
        places = [*self._shims, self._python.parent, Path(sys.executable).parent, environ["PATH"]]
        path = os.pathsep.join(map(str, places))
        # Pip reads this 0 as --no-build-isolation. Looking through all that bench needs takes it longer than all else;
        # tests/e2e/test_env_commands.py lets it.
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1"}
        return {**environ, **offline, "PATH": path, "NO_COLOR": "1"}

    def type(self, text: str) -> subprocess.CompletedProcess[str]:
        """Type a command, as a page has it, whatever comes of it."""
        return self._start(self._shell(text))

    def _shell(self, text: str) -> list[str]:
        """A command in a shell that begins with the folder and variables in which the one before ended."""
        left = shlex.quote(str(self._folder / "shell"))
        begin = f"[ ! -f {left} ] || . {left}\nset -a -o pipefail"
        end = f'ended=$?; {{ export -p; printf "cd %q\\n" "$PWD"; }} > {left}; exit $ended'
        return ["bash", "-c", f"{begin}\n{self._adapt(text)}\n{end}"]

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

    def _serve(self, words: list[str]) -> None:
        """Start a server; from now on the documented port is the one that it got."""
        at = words.index("--port")
        command = ["bench", "serve", *words[:at], "--port", "0", *words[at + 2 :]]
        self._urls[words[at + 1]] = self._open.enter_context(served(command, self.cwd, self.environ())).url

    def _adapt(self, text: str) -> str:
        return _ADDRESS.sub(lambda match: self._urls.get(match["port"], _NO_SERVER), text)

    def _put_files(self, folder: Path) -> None:
        """The files of datasets that a reader has, where pages write `PATH`."""
        folder.mkdir()
        for name, rows in (("test", problems()), ("math", MATHEMATICS), ("HumanEval", PROGRAMS)):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "HumanEval.jsonl.gz").write_bytes(gzip.compress((folder / "HumanEval.jsonl").read_bytes()))


@contextmanager
def plain_server(folder: Path) -> Generator[str]:
    """The url of a server of plain text, which any environment scores: a documented server would know one environment's
    questions only. It keeps nothing, so that it may serve many readers."""
    with served(["bench", "serve", "--port", "0"], folder, os.environ) as server:
        yield server.url


def plain(text: str) -> str:
    """Printed text without what differs between runs: ids, ports, times, sizes on disk, commits and widths."""
    for pattern, word in _VOLATILE:
        text = re.sub(pattern, word, text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


_VOLATILE = (
    (_ID, "ID"),
    (r"https://huggingface\.co|http://(?:localhost|127\.0\.0\.1):\d+", "SERVER"),
    (r"\bcommit [0-9a-f]{8}\b", "COMMIT"),
    (r"\d[\d.,]*k? ?(?:ms|s|min|h|kB|MB|/s)(?![\w])", "SOME"),
    (r"─+", "─"),
)


def shape(text: str) -> str:
    """Printed text without any figures."""
    return re.sub(r"\d[\d.,]*[kM]?", "#", plain(text))


def _own_python(venv: Path) -> Path:
    """The interpreter of a new virtual environment that has bench as a dependency has it, and its command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=PATIENCE)
    [packages] = venv.glob("lib/python*/site-packages")
    (packages / "bench.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python, command = venv / "bin" / "python", venv / "bin" / "bench"
    command.write_text(f"#!{python}\nimport sys\nfrom harness.cli.main import main\nsys.exit(main())\n")
    command.chmod(0o755)
    return python
