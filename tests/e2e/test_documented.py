"""What the documentation says is so: its commands run, its links lead somewhere, its output looks like that."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import nursery
import pytest
from documented import ROOT, Step, code, commands, configs, loose_commands, name_of, pages, steps
from documented_session import Session, plain_server, shape, stock
from hub_server import HubServer

EXCUSED = {
    "make chaos": "takes minutes; tests/chaos plays its named rounds, a test each",
    "make test": "would call this test; .ci/run runs `make test-all`, which is `make test` and the slow tests",
    "python -m twine upload environments/my_env/dist/my_env-0.1.0-py3-none-any.whl": "publishes, to the real index",
    "pip install -e .": "installs; tests/envs/test_guide.py builds and inspects the wheel",
}
"""Commands that are not run here, and who answers for them."""

RECIPES = {"make quickstart": "bench run configs/eval/quickstart.toml"}
"""Targets that install first, which .ci/run does in a fresh virtual environment; here only what they do then is run."""


def doing(path: Path) -> list[Step]:
    """What the test does of a page or configuration."""
    wanted = (step for step in steps(path) if not is_excused(step))
    return [replace(step, text=RECIPES.get(step.text, step.text)) for step in wanted]


def is_excused(step: Step) -> bool:
    return step.kind == "command" and step.text in EXCUSED


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
    installs = any(step.kind == "command" and step.text.startswith("bench env install") for step in doing(path))
    with Session(tmp_path, hub, default, installs=installs) as reader:
        for step in doing(path):
            if step.kind == "shown":
                check_shown(step, reader.printed)
            else:
                reader.do(step)


def check_shown(step: Step, printed: str) -> None:
    """Tables and notes must have been printed as shown; figures may differ, except where a page of an environment
    shows its reference player's."""
    if not ("───" in step.text or step.text.startswith("note: ")):
        return
    exact = step.page.startswith("environments/")
    normal = str.strip if exact else shape
    seen = {normal(line) for line in printed.splitlines()}
    missing = [line for line in step.text.splitlines() if line.strip() not in ("", "…") and normal(line) not in seen]
    assert not missing, f"{step.where} shows what was not printed:\n" + "\n".join(missing) + f"\n\nprinted:\n{printed}"


def shown_error(page: str) -> str:
    """The only error that a page shows."""
    [text] = [s.text for s in steps(ROOT / page) if s.kind == "shown" and s.text.startswith("error: ")]
    return shape(text)


@pytest.mark.slow
def test_a_refused_resume_reads_as_the_guide_shows_it(tmp_path: Path, hub: HubServer, default: str) -> None:
    run = "bench run gsm8k -n 2 -m my-model -b http://localhost:8000/v1"
    with Session(tmp_path, hub, default) as reader:
        assert reader.type(f"{run} -T 0.7").returncode == 0
        refused = reader.type(f"{run} -T 1.0 --resume")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert shape(refused.stderr) == shown_error("docs/guides/running.md")


def test_an_unknown_key_reads_as_the_guide_shows_it(tmp_path: Path, hub: HubServer, default: str) -> None:
    with Session(tmp_path, hub, default) as reader:
        (reader.cwd / "suite.toml").write_text('[[eval]]\n[eval.env]\nenv_id = "gsm8k"\nnum_exmaples = 5\n')
        refused = reader.type("bench run suite.toml -m reference/oracle")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert shape(refused.stderr) == shown_error("docs/guides/suites.md")


def test_every_command_is_run_or_excused() -> None:
    run = {step.where: step.text.split()[0] for path in BUSY for step in doing(path)}
    strange = [
        f"{step.where}: {step.text}"
        for step in commands()
        if not is_excused(step) and run.get(step.where) not in ("bench", "curl", "python")
    ]
    assert not strange, "neither run here nor excused with a reason:\n" + "\n".join(strange)


def test_excuses_and_recipes_are_not_older_than_what_they_stand_for() -> None:
    assert {step.text for step in commands()} >= {*EXCUSED, *RECIPES}
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(f"\nmake {target}\n" in ci for target in ("setup", "quickstart", "check", "test-all || again"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, recipe in RECIPES.items():
        assert re.search(
            rf"^{target.removeprefix('make ')}:.*\n\t\$\(BIN\)/{re.escape(recipe)}\n\n", makefile, re.MULTILINE
        )


def test_no_command_hides_in_an_indented_block() -> None:
    assert [line for path in pages() for line in loose_commands(path)] == []


def test_the_four_commands_of_a_newcomer_stand_in_the_readme() -> None:
    said = [step.text for step in steps(ROOT / "README.md") if step.kind == "command"]
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
    *(("resume",), ("replay",), ("rescore",), ("export",), ("doctor",)),
    *(("compare",), ("gate",), ("power",), ("report",)),
    *(("multi", name) for name in ("runs", "show", "replay")),
    *(("runs", name) for name in ("list", "show", "rm")),
    *(("env", name) for name in ("init", "install", "list", "info", "check")),
]


@cache
def flags_of(*words: str) -> set[str]:
    environ = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    done = nursery.run(["bench", *words, "--help"], environ=environ)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z][a-z_-]+", done.stdout))


def test_every_flag_that_is_mentioned_exists() -> None:
    known = {flag for words in COMMANDS for flag in flags_of(*words)}
    known |= {"--no-deps"}  # of pip
    wrong = [
        f"{name_of(path)}:{line}: {flag}"
        for path in pages()
        for line, text in code(path)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z_-]+", text)
        if flag not in known
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
    rooms = [
        path
        for path in (ROOT / "harness").iterdir()
        if not path.name.startswith(("_", ".")) and path.suffix != ".typed"
    ]
    names = [f"`{path.name}/`" if path.is_dir() else f"`{path.stem}`" for path in rooms]
    assert [name for name in names if name not in text] == []


def test_every_checked_in_suite_is_known_to_the_tests_that_resolve_them() -> None:
    registry = ROOT / "configs" / "endpoints.toml"
    assert {registry, *(ROOT / "configs" / "eval").glob("*.toml")} == set(configs()), "tests/config/test_checked_in.py"
