"""The documentation, checked: its commands run as typed, print what it shows, and its links lead somewhere.

All pages together take about 2.5 minutes on two idle cores; they share one stand-in Hub and one server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import nursery
import pytest
from containers import need_podman
from documented import (
    ROOT,
    Step,
    bare,
    blocks,
    code,
    commands,
    configs,
    hidden_commands,
    name_of,
    operators,
    pages,
    steps,
)
from documented_session import STAND_INS, Session, plain, plain_server, shape, stock
from hub_server import HubServer

NOT_RUN = {
    "bench --install-completion": "changes a start file of the shell; tests/cli/test_completion_in_bash.py runs it",
    "make chaos": "takes minutes; tests/chaos plays its named rounds, a test each",
    "make test": "would call this test; .ci/run runs it in a fresh virtual environment",
    "make quickstart": "installs; .ci/run runs it, and here its second line is run",
    "pip install 'bench-harness[litellm]'": "needs the package index",
    "ray start --head --port 6379": "starts a cluster that goes on; tests/plugins/ray_executor uses one",
    "ray start --address FIRST:6379": "needs another computer",
    "bench run suite.toml --executor ray --ray-address auto": "needs that cluster",
    "bench run suite.toml --executor ray --ray-address FIRST:6379 --workers 64 --worker-cpus 2": "needs that cluster",
    "sbatch suite.sbatch": "needs a cluster with Slurm",
    "kubectl exec -it POD-OF-THE-HEAD -- bench run suite.toml --executor ray --ray-address auto -o /results": (
        "needs a cluster with Kubernetes"
    ),
    "python -m twine upload environments/my_env/dist/my_env-0.1.0-py3-none-any.whl": "publishes, to the real index",
    "bench run gsm8k -m claude-sonnet-4-5 -b litellm://anthropic": "needs a key, and asks a real provider",
    "bench view": "serves until Ctrl-C, like the three below; tests/plugins/view/test_view_command.py runs them",
    "bench view latest": "serves until Ctrl-C",
    "bench view 20261121T0915 latest": "serves until Ctrl-C",
    "bench view --host 0.0.0.0 --port 8765 --no-open": "serves until Ctrl-C",
    "python -m http.server -d site": "serves until Ctrl-C; tests/plugins/view/test_bundle.py reads what it serves",
    "docs/guides/authoring.md": "its Python is a test file, which tests/authoring/test_guide.py runs",
    "docs/guides/notebooks.md": "its Python is cells, which tests/report/frames/test_guide.py runs",
    "docs/guides/sandbox.md": "its session is a fragment; tests/sandbox opens sessions",
    "docs/guides/containers.md": "its calls are fragments; tests/sandbox/test_machine.py and tests/envs make them",
    "docs/concepts/architecture.md": "a picture",
    "harness/ ": "folders, each with what it holds",
    "outputs/\n": "files, each with what it holds",
    "data/ENVIRONMENT/": "files, each with what it holds",
    "user       ": "an excerpt of a transcript, formatted for readers",
    "served 14 requests": "a server prints it when it is stopped; tests/reference/test_serve.py stops one",
    "Missing API key": "asks a paid provider where the key is there; tests/cli/test_eval_errors.py lacks it",
    **STAND_INS,
}
"""All that is not run or shown here as a reader types or sees it, with the reason: commands, pages (their Python and
what it prints), blocks by their first words, and what stands in for a part of a command."""

RECIPES = {"make quickstart": "bench run configs/eval/quickstart.toml"}
"""What is run in place of a target that installs first."""

OTHER_TOOLS = {
    "docs/guides/from-inspect.md": {
        "--model-base-url", "--limit", "--epochs", "--max-connections", "--log-dir", "--batch", "--fail-on-error",
    },
    "docs/guides/from-lm-eval.md": {
        "--apply_chat_template", "--config", "--gen_kwargs", "--hf_hub_log_args", "--limit", "--log_samples",
        "--model_args", "--num_fewshot", "--output_path", "--predict_only", "--tasks", "--use_cache",
    },
    "docs/guides/lm-eval.md": {
        "--apply_chat_template", "--fewshot_as_multiturn", "--include_path", "--limit", "--model_args", "--num_fewshot",
        "--system_instruction",
    },
    "docs/guides/from-verifiers.md": {"--skip-upload", "--hosted"},
    "docs/guides/import.md": {"--log_samples", "--output_path"},
    "docs/guides/many-machines.md": {
        "--head", "--port", "--address", "--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task", "--block",
        "--exclude", "--overlap", "--help",
    },
    "docs/concepts/scale.md": {"--peer", "--rollouts"},
}  # fmt: skip
"""Options of the tools that a page compares with, and of the measurements."""

NEED_CONTAINERS = {"docs/guides/containers.md", "docs/guides/terminal-benchmarks.md"}
"""Pages whose commands start containers."""

LOOSE = {
    "docs/guides/running.md": "how many rollouts are in flight when the interval is narrow enough",
    "docs/guides/sequential-gate.md": "how many rollouts are in flight when the verdict is clear",
    "docs/guides/budgets.md": "how many requests are in flight when the budget is spent",
    "run      mean ": "the address of the model: a served noisy player draws by the rollout's key, which has it",
}
"""Pages and blocks, by their first words, whose figures may differ from those printed, and on what they depend."""


def doing(path: Path) -> list[Step]:
    """What the test does of a page or configuration."""
    wanted = (step for step in steps(path) if not is_excused(step))
    return [replace(step, text=RECIPES.get(bare(step.text), step.text)) for step in wanted]


def is_excused(step: Step) -> bool:
    if step.kind == "command":
        return bare(step.text) in {*NOT_RUN} - {*RECIPES}
    return step.kind != "file" and (step.page in NOT_RUN or step.text.startswith(tuple(NOT_RUN)))


def has_work(path: Path) -> bool:
    return any(step.kind in ("command", "python") for step in doing(path))


BUSY = [path for path in [*pages(), *configs()] if has_work(path)]


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        stock(server.hub)
        yield server


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plain_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("path", BUSY, ids=name_of)
def test_what_a_page_tells_its_readers_to_do_works(path: Path, tmp_path: Path, hub: HubServer, default: str) -> None:
    play(path, tmp_path, hub, default)


def play(path: Path, folder: Path, hub: HubServer, default: str) -> None:
    """Do what a page says, from top to bottom."""
    if name_of(path) in NEED_CONTAINERS:
        need_podman()
    installs = any(step.kind == "command" and step.text.startswith("bench env install") for step in doing(path))
    if any(step.kind == "command" and "lm-eval/" in step.text for step in doing(path)):
        pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'bench-harness[lm-eval]'")
    if any(step.kind == "command" and "--executor ray" in step.text for step in doing(path)):
        pytest.importorskip("ray", reason="ray is not installed: pip install 'bench-harness[ray]'")
    with Session(folder, hub, default, installs=installs) as reader:
        for step in doing(path):
            if step.kind == "shown":
                check_shown(step, reader.printed)
            else:
                reader.do(step)


TOWNS = """Save this as `towns.py`:

```python
from harness import Rubric, SingleTurnEnv

class Towns(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    return Towns(dataset=[{"question": "Capital of Peru?", "answer": "Lima"}], rubric=Rubric([lambda answer: 1.0]))
```

"""

RUN = "bench run ./towns.py -r 1 -m reference/oracle"

PAGES = {
    "sound": (f"{TOWNS}```bash\n{RUN}\n```\n\n```\n1 of 1\n```\n", ""),
    "name of a file": (f"{TOWNS}```bash\nbench run towns -m reference/oracle\n```\n", "no environment 'towns'"),
    "organisation": (f"{TOWNS}```bash\nbench run our/towns -m reference/oracle\n```\n", "no environment 'our/towns'"),
    "order": (f"```bash\n{RUN}\n```\n\n{TOWNS}", "./towns.py: no environment found"),
    "folder": (f"{TOWNS}```bash\nmkdir other\ncd other\n{RUN}\n```\n", "./towns.py: no environment found"),
    "port": (f"{TOWNS}```bash\nbench run ./towns.py -m m -b http://localhost:8001/v1\n```\n", "127.0.0.1:9"),
    "id of a run": (f"{TOWNS}```bash\n{RUN}\nbench runs show 20261122T002209Z-yaql\n```\n", "no run '20261122T0"),
    "pipe": (f"{TOWNS}```bash\n{RUN}\nbench runs show nothing | cat\nbench runs\n```\n", "no run 'nothing'"),
    "figure": (f"{TOWNS}```bash\n{RUN}\n```\n\n```\n2 of 2\n```\n", "shows what was not printed"),
    "another block": (f"{TOWNS}```bash\n{RUN}\n```\n```bash\nbench runs -q\n```\n```\n1 of 1\n```\n", "not printed"),
    "unfinished": ("```bash\nbench runs \\\n```\n", "does not end"),
}
"""Pages by what is wrong with them, and what is said of it."""


@pytest.mark.slow
@pytest.mark.parametrize("wrong", PAGES)
def test_a_page_with_a_broken_command_or_stale_output_fails(
    wrong: str, tmp_path: Path, hub: HubServer, default: str
) -> None:
    page, (text, fault) = tmp_path / "page.md", PAGES[wrong]
    page.write_text(text)
    if not fault:
        return play(page, tmp_path / "reader", hub, default)
    with pytest.raises(AssertionError) as failed:
        play(page, tmp_path / "reader", hub, default)
    assert fault in str(failed.value)


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ bench runs\n```\n",
        "```\n$ bench runs\n```\n",
        "```text\nbench runs\n```\n",
        "```sh\nbench runs\n```\n",
        "~~~bash\nbench runs\n~~~\n",
        "- ```bash\n  bench runs\n  ```\n",
        '```bash title="runs"\nbench runs\n```\n',
        "<pre>bench runs</pre>\n",
        "    bench runs\n",
        "\t$ KEY=1 pip install x\n",
    ],
)
def test_commands_outside_plain_bash_blocks_are_found(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    try:
        found = hidden_commands(tmp_path / "page.md")
    except AssertionError as never_closed:
        found = [str(never_closed)]
    assert found


@pytest.mark.parametrize(
    "line",
    ["a; b", "a || true", "a & ", "! a", "a; exit 0", "if a; then b; fi", "{ a; }", "while a; do b; done", "a |& cat"],
)
def test_lines_that_may_hide_an_exit_code_are_found(line: str) -> None:
    assert operators(line)
    assert not operators("a | b && c 'x; y' \"d || e\" $(f) > g # h; i")


def check_shown(step: Step, printed: str) -> None:
    """What a page shows must have been printed by the commands of the block before: each paragraph as a whole, however
    it is broken into lines, or else each of its lines. `…` stands for what is left out."""
    normal = shape if step.page in LOOSE or step.text.startswith(tuple(LOOSE)) else plain
    seen = normal(printed)
    lines, text = set(seen.splitlines()), " ".join(seen.split())
    missing = list[str]()
    for paragraph in re.split(r"\n(?:\s*\n)+|^…$", normal(step.text), flags=re.MULTILINE):
        if " ".join(paragraph.split()) not in text:
            missing += [line for line in paragraph.splitlines() if line.strip() and line not in lines]
    assert not missing, f"{step.where} shows what was not printed:\n" + "\n".join(missing) + f"\n\nprinted:\n{printed}"


def test_every_command_is_run_or_excused() -> None:
    run = {step.where for path in BUSY for step in doing(path)}
    strange = [f"{step.where}: {step.text}" for step in commands() if not is_excused(step) and step.where not in run]
    assert not strange, "neither run here nor excused with a reason:\n" + "\n".join(strange)


def test_no_command_line_hides_an_exit_code() -> None:
    """The only joint is `; echo "exit code $?"`, before a block that shows a code other than 0."""
    for path in pages():
        told = steps(path)
        for number, step in enumerate(told):
            joints = operators(step.text) if step.kind == "command" else []
            if joints:
                after = next((each for each in told[number + 1 :] if each.kind != "command"), None)
                assert joints == [";"] and bare(step.text).endswith('; echo "exit code $?"'), step.where
                assert after is not None and re.search(r"^exit code [1-9]", after.text, re.MULTILINE), step.where


def test_a_server_that_blocks_its_terminal_stands_alone_in_its_block() -> None:
    for path in pages():
        for block in blocks(path):
            if block.language == "bash" and re.search(r"^bench serve", block.text, re.MULTILINE):
                assert "\n" not in block.text.strip(), f"{block.page}:{block.line}: what follows never runs"


def test_excuses_and_recipes_are_not_older_than_what_they_stand_for() -> None:
    told = [step for path in [*pages(), *configs()] for step in steps(path)]
    stale = [
        key
        for key in {*NOT_RUN, *LOOSE} - {*STAND_INS}
        if not any(step.text.startswith(key) or step.page == key for step in told)
    ]
    assert stale == []
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^[^#\n]*\bmake ([a-z-]+)", ci) == ["quickstart", "test", "check", "test-rest"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, recipe in RECIPES.items():
        assert re.search(
            rf"^{target.removeprefix('make ')}:.*\n\t\$\(BIN\)/{re.escape(recipe)}\n\n", makefile, re.MULTILINE
        )


def test_no_command_hides_outside_bash_blocks() -> None:
    assert [line for path in pages() for line in hidden_commands(path)] == []


def test_the_four_commands_of_a_newcomer_stand_in_the_readme() -> None:
    said = [bare(step.text) for step in steps(ROOT / "README.md") if step.kind == "command"]
    server = "-m my-model -b http://localhost:8000/v1"
    for wanted in (
        "make quickstart",
        "bench run configs/eval/suite.toml",
        f"bench run gsm8k,wordle -n 10 -r 5 {server}",
        f"""bench run gsm8k -n -1 -a '{{"dataset": "PATH/test.jsonl"}}' {server}""",
    ):
        assert wanted in said


COMMANDS = [
    *((), ("run",), ("eval",), ("multi",), ("test",), ("exec",), ("push",), ("serve",), ("env",), ("runs",)),
    *(("resume",), ("replay",), ("rescore",), ("export",), ("import",), ("doctor",)),
    *(("compare",), ("gate",), ("power",), ("items",), ("estimate",), ("trend",), ("report",), ("view",)),
    *(("multi", name) for name in ("runs", "show", "replay")),
    *(("runs", name) for name in ("list", "show", "rm")),
    *(("env", name) for name in ("init", "install", "list", "info", "check")),
    *(("judge", name) for name in ("check", "next")),
]


@cache
def flags_of(*words: str) -> set[str]:
    environ = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    done = nursery.run(["bench", *words, "--help"], environ=environ)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z][a-z_-]+", done.stdout))


def test_every_flag_that_is_mentioned_exists() -> None:
    known = {flag for words in COMMANDS for flag in flags_of(*words)}
    known |= {"--no-deps", "--teapots", "--oldkit-board"}  # of pip, and of the example of a plugin
    wrong = [
        f"{name_of(path)}:{line}: {flag}"
        for path in pages()
        for line, text in code(path)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z_-]+", text)
        if flag not in known | OTHER_TOOLS.get(name_of(path), set())
    ]
    assert wrong == []


LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def slugs(path: Path) -> set[str]:
    """What a page's headings can be linked by."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for match in LINK.finditer(path.read_text(encoding="utf-8")):
        target, _, anchor = match["target"].partition("#")
        if target.startswith(("http://", "https://")):
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists() and there.is_relative_to(ROOT), f"{name_of(path)} links to {match['target']}"
        assert not anchor or anchor in slugs(there), f"{name_of(path)} links to {match['target']}: no such heading"


def test_every_page_of_docs_is_listed() -> None:
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"({name})" in listed


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.relative_to(ROOT / "harness").parts[0] for path in (ROOT / "harness").glob("*/**/*.py")}
    assert [name for name in sorted(rooms) if f"`{name}/`" not in text] == []


def test_every_checked_in_suite_is_known_to_the_tests_that_resolve_them() -> None:
    registry = ROOT / "configs" / "endpoints.toml"
    assert {registry, *(ROOT / "configs" / "eval").glob("*.toml")} == set(configs()), (
        "tests/settings/test_checked_in.py"
    )
