"""Run folders of strangers: no command writes outside of them, follows a link in them, or opens what is no file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nursery
import pytest
from hub_runs import TOKEN, hub_env
from hub_server import HubServer
from recorded_runs import ALL_RIGHT, Bench, Write, make_run

from harness import evaluate
from harness.core.errors import UsageError
from harness.store.known_runs import is_known as is_known_run

NAMES = ("run.json", "config.toml", "journal.jsonl", "summary.json", "notes.jsonl", "data", "data/{rows}", ".lock",
         "../README.md", "../.card.lock", "../../../suites/{suite}.json")  # fmt: skip
KINDS = ("link", "dangling", "fifo", "socket", "hard")
COMMANDS = (
    ("runs", "show", "RUN"), ("runs", "show", "RUN", "--example", "0"), ("runs", "list"),
    ("report", "RUN", "--force", "--no-plots"), ("report", "RUN", "--force", "-f", "md"),
    ("report", "--force", "--no-plots"),
    ("export", "RUN", "-f", "jsonl", "--force"), ("export", "RUN", "-f", "verifiers", "--force"),
    ("compare", "RUN", "OTHER"), ("gate", "RUN", "--baseline", "OTHER", "--margin", "0.1", "--junit", "gate.xml"),
    ("power", "--from", "OTHER", "--against", "RUN", "--mde", "0.2"), ("doctor", "RUN/config.toml", "--offline"),
    ("resume", "RUN", "-q"), ("resume", "RUN", "--retry-failed", "-q"), ("rescore", "RUN", "-q"),
    ("replay", "RUN", "-q"),
    ("run", "RUN/config.toml", "-q"), ("run", "RUN/config.toml", "--resume-from", "RUN", "-q"),
    ("push", "RUN", "--eval-results", "org/model", "--benchmark", "org/benchmark", "--print"),
    ("runs", "rm", "--yes", "RUN"),
)  # fmt: skip
PRECIOUS = b"precious\n"


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A FIFO that is opened blocks for ever: then this alarm fails the test."""

    def fail(_signal: int, _frame: object) -> None:
        pytest.fail("a command did not end within 10 minutes: it may have opened a FIFO")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(place: Path, kind: str, target: Path) -> None:
    """Something that is no file of its own, in the place of a file or folder."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if kind in ("link", "dangling"):
        place.symlink_to(target.parent / "nothing" if kind == "dangling" else target.absolute())
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "hard":
        os.link(target, place)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(place.parent)  # the path of a socket is a short one
            server.bind(place.name)
            os.chdir(here)


def typed(command: tuple[str, ...], run: Path, other: Path) -> list[str]:
    return [word.replace("RUN", str(run)).replace("OTHER", str(other)) for word in command]


def named(name: str, run: Path) -> Path:
    rows = next((path.name for path in (run / "data").glob("*.parquet")), "part.parquet")
    suite = next((path.stem for path in run.parents[2].glob("suites/*.json")), "suite")
    return run / name.format(rows=rows, suite=suite)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_read_or_written_through_what_is_no_file(
    bench: Bench, write: Write, tmp_path: Path, name: str, kind: str
) -> None:
    made, other = make_run(bench, write), make_run(bench, write, model=ALL_RIGHT)
    outside = tmp_path / "outside"
    outside.mkdir()
    file, folder = outside / "file", outside / "folder"
    # Links and FIFOs with every command; of the other kinds, which are refused in the same place, each with a third.
    first = KINDS.index(kind) + NAMES.index(name)
    for command in COMMANDS if kind in ("link", "fifo") else COMMANDS[first % 3 :: 3]:
        shutil.copytree(made.parents[2], "strange", symlinks=True)
        run = Path("strange", *made.parts[-3:])
        folder.mkdir()
        for path in (file, folder / "part.parquet", folder / ".x.tmp"):
            path.write_bytes(PRECIOUS)
        put(named(name, run), kind, folder if name == "data" and kind == "link" else file)
        before = sorted(str(path) for path in outside.rglob("*"))
        done = bench(
            *typed(command, run, Path("strange", *other.parts[-3:])),
            *(("-o", "strange") if command[:2] == ("runs", "list") else ()),
        )
        assert "Traceback" not in done.err and "internal error" not in done.err, (command, done.err)
        assert sorted(str(path) for path in outside.rglob("*")) == before, command
        assert {path.read_bytes() for path in outside.rglob("*") if path.is_file()} == {PRECIOUS}, command
        assert "precious" not in done.out + done.err, command
        shutil.rmtree("strange", ignore_errors=True)
        shutil.rmtree(folder)
        for path in outside.iterdir():
            path.unlink()
        for path in (*Path().glob("*.html"), *Path().glob("*.jsonl"), *Path().glob("*.md"), *Path().glob("*.xml")):
            path.unlink()
        shutil.rmtree("verifiers", ignore_errors=True)


@pytest.mark.plugins
def test_each_command_of_the_table_takes_an_honest_run(bench: Bench, write: Write) -> None:
    """Else a command of the table would be refused for its own words, and show nothing."""
    run, other = make_run(bench, write), make_run(bench, write, model=ALL_RIGHT)
    for command in COMMANDS:
        done = bench(*typed(command, run, other))
        assert done.code in (0, 1, 3) or command[0] == "push", (command, done.err)
        assert "No such option" not in done.err and "Missing" not in done.err, (command, done.err)


@pytest.mark.parametrize("name", ["run.json", "config.toml", "summary.json", "data", "data/{rows}"])
def test_a_push_sends_nothing_that_a_link_leads_to(bench: Bench, write: Write, tmp_path: Path, name: str) -> None:
    run = make_run(bench, write)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file", tmp_path / "folder" / "part.parquet"):
        path.write_bytes(PRECIOUS)
    put(named(name, run), "link", tmp_path / ("folder" if name == "data" else "file"))
    with HubServer() as server:
        server.hub.account(TOKEN, "alice")
        pushed = nursery.run(["bench", "push", str(run)], cwd=Path.cwd(), environ=hub_env(server, tmp_path / "home"))
        sent = [
            entry.data for repo in server.hub.repos.values() for each in repo.commits for entry in each.files.values()
        ]
    assert not [data for data in sent if PRECIOUS.strip() in data]
    assert "precious" not in pushed.stdout + pushed.stderr and "Traceback" not in pushed.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["index.jsonl", "{record}", ".index.lock"])
def test_records_of_several_models_are_read_and_written_through_no_link(
    bench: Bench, write: Write, tmp_path: Path, name: str, kind: str
) -> None:
    write("tasks.json", json.dumps([{"id": "a", "prompt": "q", "expected": "a"}]))
    usual = ("multi", "tasks.json", "-m", "reference/oracle", "--persist", "--persist-dir", "records", "-q")
    assert bench(*usual).code == 0
    record = next(path for path in Path("records").glob("*.json"))
    precious = tmp_path / "precious"
    precious.write_bytes(PRECIOUS)
    put(Path("records", name.format(record=record.name)), kind, precious)
    for command in (("runs",), ("show", record.stem), ("replay", record.stem, "-q"), usual[1:]):
        more = () if command[0] == "tasks.json" else ("--persist-dir", "records")
        done = bench("multi", *command, *more)
        assert "Traceback" not in done.err and "internal error" not in done.err, (command, done.err)
        assert precious.read_bytes() == PRECIOUS and not (tmp_path / "nothing").exists(), command
        assert "precious" not in done.out + done.err.replace(str(precious), ""), command


@pytest.mark.parametrize("parent", ["{tmp}/far", "../../far", "..", "/", "", "x/../../far"])
def test_a_derived_run_names_its_parent_by_an_id_and_no_path(
    bench: Bench, write: Write, tmp_path: Path, parent: str
) -> None:
    run = make_run(bench, write)
    assert bench("rescore", str(run), "-q").code == 0
    made = next(path for path in run.parent.glob("2*") if path.name != run.name)
    shutil.copytree(run, run.parents[2] / "far")
    shutil.copytree(run, tmp_path / "far", dirs_exist_ok=True)
    document = json.loads((made / "run.json").read_text())
    document |= {"status": "interrupted", "derived": {**document["derived"], "parent": parent.format(tmp=tmp_path)}}
    (made / "run.json").write_text(json.dumps(document))
    before = {path: path.read_bytes() for path in (tmp_path / "far").rglob("*") if path.is_file()}
    for command in (("resume", str(made), "-q"), ("runs", "show", str(made)), ("report", str(made), "--force")):
        done = bench(*command)
        assert "Traceback" not in done.err, done.err
        assert done.code == 2 or command[0] != "resume", done.err
    assert {path: path.read_bytes() for path in (tmp_path / "far").rglob("*") if path.is_file()} == before


def test_a_folder_that_is_a_link_is_not_listed_written_or_removed(bench: Bench, write: Write, tmp_path: Path) -> None:
    run = make_run(bench, write)
    far = tmp_path / "far"
    shutil.move(run.parent, far)
    for linked in (run.parent, run.parents[1], run):
        linked.parent.mkdir(exist_ok=True, parents=True)
        place = {run.parent: far, run.parents[1]: tmp_path, run: far / run.name}[linked]
        if linked == run.parents[1]:
            shutil.rmtree(linked)
        linked.symlink_to(place)
        before = {path: path.read_bytes() for path in far.rglob("*") if path.is_file()}
        assert run.name not in bench("runs", "list").out
        done = bench("runs", "rm", "--yes", str(run if linked != run.parents[1] else linked / "far" / run.name))
        assert done.code == 2 and "symbolic link" in done.err, (linked, done.err)
        if linked != run:
            assert "symbolic link" in bench("run", "by_file", "-m", "reference/oracle", "-n", "1", "-q").err
        assert {path: path.read_bytes() for path in far.rglob("*") if path.is_file()} == before
        linked.unlink()
        if linked == run.parents[1]:
            linked.mkdir()


def test_an_output_folder_that_is_a_link_of_the_user_is_used(bench: Bench, write: Write, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    Path("outputs").symlink_to(tmp_path / "disk")
    run = make_run(bench, write)
    assert run.name in bench("runs", "list").out
    assert bench("rescore", run.name, "-q").code == 0
    assert bench("runs", "rm", "--yes", run.name).code == 0


def test_a_suite_names_only_its_own_runs(bench: Bench, write: Write, tmp_path: Path) -> None:
    run = make_run(bench, write)
    suites = tmp_path / "theirs" / "suites"
    suites.mkdir(parents=True)
    for said in (str(run.absolute()), os.path.relpath(run, suites.parent)):
        (suites / "s.json").write_text(json.dumps({"runs": [{"path": said}]}))
        done = bench("report", str(suites / "s.json"))
        assert done.code == 2 and "none of the 1 runs of this suite" in done.err


# Trust


EVIL = """
from pathlib import Path
from typing import Any
from harness import Rubric, SingleTurnEnv

Path("ran").touch()

def load_environment():
    return SingleTurnEnv(dataset=[{"question": "q", "answer": "a"}], rubric=Rubric([lambda answer: 1.0]))
"""

REPEATING = (("rescore", "RUN"), ("replay", "RUN"), ("resume", "RUN"), ("run", "RUN/config.toml"))


def strange(bench: Bench, write: Write, change: Callable[[str], str], *, done: bool = False) -> Path:
    """A run folder as a stranger would send it: one of ours with other settings."""
    made = make_run(bench, write)
    shutil.move(made.parents[2], "strange")
    run = Path("strange", *made.parts[-3:])
    config = run / "config.toml"
    config.write_text(change(config.read_text()))
    if not done:
        document = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**document, "status": "interrupted"}))
    return run


def said(bench: Bench, run: Path, command: tuple[str, ...], *more: str) -> Any:
    return bench(*(word.replace("RUN", str(run)) for word in command), "-q", *more)


@pytest.mark.parametrize("place", ["{run}/evil.py", "strange/evil.py", "../evil.py", "{tmp}/evil.py", "link.py"])
def test_code_of_a_strange_run_is_not_run_unasked(bench: Bench, write: Write, tmp_path: Path, place: str) -> None:
    run = strange(bench, write, str)
    env_id = place.format(run=run, tmp=tmp_path.parent)
    if place == "link.py":
        (run / "evil.py").write_text(EVIL)
        Path(env_id).symlink_to(run / "evil.py")
        env_id = "./link.py"
    else:
        Path(env_id).write_text(EVIL)
        env_id = env_id if env_id.startswith(("/", ".")) else f"./{env_id}"
    config = run / "config.toml"
    config.write_text(config.read_text().replace("./by_file.py", env_id))
    for command in (*REPEATING, ("doctor", "RUN/config.toml", "--offline")):
        done = said(bench, run, command)
        assert done.code == 2 and "was not made on this machine" in done.err and "--trust" in done.err, done.err
        assert not Path("ran").exists()
    with pytest.raises(UsageError, match=r"was not made on this machine.*run the code in.*add trust=True"):
        evaluate(config, progress=False)
    assert not Path("ran").exists()
    assert "--trust" not in said(bench, run, ("rescore", "RUN"), "--trust").err
    assert Path("ran").exists()


@pytest.mark.parametrize("place", ["{run}/tasks", "../tasks"])
def test_a_folder_of_tasks_that_a_strange_run_names_is_code(bench: Bench, write: Write, place: str) -> None:
    run = strange(bench, write, lambda text: text.replace("./by_file.py", "lm-eval/own"))
    folder = place.format(run=run)
    Path(folder).mkdir()
    config = run / "config.toml"
    table = "[eval.env.env_args]\n"
    assert table in config.read_text()
    config.write_text(config.read_text().replace(table, f"{table}include_path = '{folder}'\n"))
    for command in REPEATING:
        done = said(bench, run, command)
        assert done.code == 2, done.err
        assert "run the code in" in done.err
        assert "--trust" in done.err


TABLE = "[eval.env.env_args]\n"
HARBOR = (
    ('agent = "strange.run_1.evil:Agent"', "run the code in"),
    ('agent = "strange.run_1.e:vil:Agent"', "run the code in"),
    ('agent = "strange.run_1.compiled:Agent"', "run the code in"),
    ('agent = "no_such_module:Agent"', "no_such_module:Agent"),
    ('path = "file://{tmp}/repository"', "file://{tmp}/repository"),
    ('path = "git+file://{tmp}/repository@main#tasks"', "git+file://"),
    ('path = "git+ssh://git@evil.example/tasks"', "evil.example/tasks"),
    ('path = "git+https://evil.example/tasks"', "run the code that path"),
    ('path = "git@evil.example:tasks"', "evil.example:tasks"),
    ('path = "{tmp}"', "run the code in {tmp}"),
    ('path = "~no-such-user/{long}"', "run the code that path"),
    ('pass_env = ["BENCH_TEST_KEY"]', "give the variable BENCH_TEST_KEY of this computer"),
    ('logs = "elsewhere"', "write files to elsewhere"),
    ('images = {{ "debian:bookworm" = "evil.example/x" }}', "run programs of the image evil.example/x"),
)


def test_arguments_that_a_source_declares_as_code_are_asked_for_however_they_are_written(
    bench: Bench, write: Write, tmp_path: Path
) -> None:
    run = strange(bench, write, lambda text: text.replace("./by_file.py", "harbor"))
    settings = (run / "config.toml").read_text()
    (run.parents[2] / "run_1").mkdir()
    for name in ("evil.py", "e:vil.py"):
        (run.parents[2] / "run_1" / name).write_text(EVIL)
    for name in ("file", "git+file", "git+ssh"):
        Path(name).mkdir()
    names = {"tmp": str(tmp_path.parent), "long": "x" * 5000}
    for index, (argument, words) in enumerate(HARBOR):
        (run / "config.toml").write_text(settings.replace(TABLE, f"{TABLE}{argument.format(**names)}\n"))
        for command in REPEATING if index == 0 else REPEATING[index % len(REPEATING) :][:1]:
            done = said(bench, run, command)
            assert done.code == 2 and "--trust" in done.err, (argument, command, done.err)
            assert words.format(**names) in done.err, (argument, command, done.err)
    assert not Path("ran").exists()


def test_the_agent_in_the_folder_of_the_user_and_installed_ones_are_not_asked_for(bench: Bench, write: Write) -> None:
    write("own_agent.py", EVIL)
    run = strange(bench, write, lambda text: text.replace("./by_file.py", "harbor"))
    settings = (run / "config.toml").read_text()
    for agent in ("own_agent:Agent", "harness.eval:RolloutAgentLoop"):
        (run / "config.toml").write_text(settings.replace(TABLE, f"{TABLE}agent = '{agent}'\n"))
        done = said(bench, run, ("run", "RUN/config.toml"))
        assert done.code and "trust" not in done.err, done.err
    assert Path("ran").exists()


def test_code_in_the_run_folder_is_asked_for_even_if_its_settings_are_ours(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    shutil.copy("by_file.py", run)
    shutil.copy("rows.json", run)
    os.chdir(run)
    done = bench("rescore", ".", "-q")
    assert done.code == 2 and "run the code in" in done.err


FOREIGN = (
    ("https://evil.example/v1", "OPENAI_API_KEY"), ("http://api.openai.com/v1", "OPENAI_API_KEY"),
    ("https://api.openai.com.evil.example/v1", "OPENAI_API_KEY"), ("https://api.openai.com:8443/v1", "OPENAI_API_KEY"),
    ("https://api.openai.com/v1", "AWS_SECRET_ACCESS_KEY"), ("https://api.openai.com/v1", "ANTHROPIC_API_KEY"),
    ("litellm://openai", "OPENAI_API_KEY"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("url", "key"), FOREIGN)
@pytest.mark.parametrize("how", ["settings", "alias"])
def test_no_key_goes_to_a_host_that_only_a_strange_run_names(
    bench: Bench, write: Write, monkeypatch: pytest.MonkeyPatch, url: str, key: str, how: str
) -> None:
    monkeypatch.setenv(key, "k-0123456789abcdef")

    def change(text: str) -> str:
        if how == "alias":
            return f'[[endpoint]]\nendpoint_id = "m"\nmodel = "m"\nurl = "{url}"\nkey = "{key}"\n' + text.replace(
                'model = "reference/oracle"', 'model = "m"'
            )
        lines = text.replace('model = "reference/oracle"', 'model = "m"')
        return lines.replace("[eval.model]\n", f'[eval.model]\napi_base_url = "{url}"\napi_key_var = "{key}"\n')

    run = strange(bench, write, change)
    for command in (("resume", "RUN"), ("run", "RUN/config.toml"), ("doctor", "RUN/config.toml")):
        done = said(bench, run, command)
        assert done.code == 2 and "was not made on this machine" in done.err and key in done.err, done.err
    done = said(bench, run, ("rescore", "RUN"))
    if how == "alias":
        assert done.code == 2 and key in done.err, "a judge may be called like that"
        return
    assert done.code == 0, done.err
    made = next(path for path in run.parents[2].glob("evals/*/2*") if path.name != run.name)
    again = bench("run", str(made / "config.toml"), "-q")
    assert again.code == 2 and key in again.err, "a rescore, which sends no key, does not make its settings ours"


def test_our_own_runs_and_strange_ones_without_reasons_are_not_asked_for(bench: Bench, write: Write) -> None:
    run = strange(bench, write, lambda text: text + "\n# edited\n")
    for command in REPEATING:
        done = said(bench, run, command)
        assert done.code == 0, done.err
    assert [each.state for each in evaluate(run / "config.toml", progress=False)] == ["done"]


@pytest.mark.parametrize("folder", ["{tmp}/far", "../far"])
def test_a_strange_run_writes_its_results_nowhere_else(bench: Bench, write: Write, tmp_path: Path, folder: str) -> None:
    place = folder.format(tmp=tmp_path.parent)
    run = strange(
        bench, write, lambda text: text.replace('output_dir = "outputs"', f"output_dir = {json.dumps(place)}")
    )
    assert place in (run / "config.toml").read_text()
    done = said(bench, run, ("run", "RUN/config.toml"))
    assert done.code == 2 and "--trust" in done.err, done.err
    assert not (Path(place) / "evals").exists()
    for command in (("rescore", "RUN"), ("replay", "RUN"), ("resume", "RUN")):
        assert said(bench, run, command).code in (0, 2)
        assert not (Path(place) / "evals").exists(), command


JUDGES = ('judge_base_url = "https://evil.example/v1"', 'judge_api_key_var = "AWS_SECRET_ACCESS_KEY"')


@pytest.mark.parametrize("argument", JUDGES)
def test_a_judge_named_by_a_strange_run_gets_no_key(bench: Bench, write: Write, argument: str) -> None:
    def change(text: str) -> str:
        assert "[eval.env.env_args]\n" in text
        return text.replace("[eval.env.env_args]\n", f"[eval.env.env_args]\n{argument}\n")

    run = strange(bench, write, change)
    for command in REPEATING:
        done = said(bench, run, command)
        assert done.code == 2 and "--trust" in done.err, done.err


def test_a_state_folder_that_cannot_be_written_makes_runs_unknown(
    bench: Bench, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for state, is_known in ((tmp_path / "file", False), (tmp_path / "state", True)):
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        run = make_run(bench, write, *([] if is_known else ["-a", '{"file": "rows.json"}']))
        assert is_known_run((run / "config.toml").read_bytes()) is is_known
