"""`--private`: nothing that a command writes of such a run can be read by anybody else, from its first byte on."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Evals
from eval_api import EXACT, Asker, rows_of
from multi_evals import Multi

from harness.agents.client import ExternalLLMClient
from harness.agents.runner import EvalRunner
from harness.core.errors import ConfigError, UsageError
from harness.multi import evaluate
from harness.store import atomic
from harness.store.rundir import RunDir

Bench = Callable[..., Any]

SPY = """
import asyncio, json, pathlib, stat
from harness import Rubric, SingleTurnEnv

async def correct(completion, answer):
    for kind in ("*/data/*.parquet", ".card.lock"):
        while answer == "6" and not list(pathlib.Path("outputs").glob(f"evals/*/{kind}")):
            await asyncio.sleep(0.01)  # the rows of those before come while the run goes on, and then the card
    seen = [
        (str(path), stat.S_IMODE(path.lstat().st_mode))
        for top in ("outputs", "made")
        for path in [pathlib.Path(top), *pathlib.Path(top).rglob("*")]
        if path.exists()
    ]
    with open("seen.jsonl", "a") as file:
        file.write(json.dumps(seen) + "\\n")
    return float(completion[-1]["content"] == answer)

class Sums(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(5)]
    return Sums(dataset=rows, rubric=Rubric([correct]))
"""
"""An environment whose reward function looks who may read what is on disk while the run goes on."""

RUN = ("run", "./spy.py", "-n", "4", "-r", "1", "-m", "reference/oracle", "-c", "1", "-f", "1", "-q")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """What is not private is open to all here, so that nothing is closed by chance."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def spy(here: Path) -> Path:
    (here / "spy.py").write_text(SPY)
    return here


def open_to_others(*tops: Path) -> list[str]:
    """What others may do anything with; the tops themselves included."""
    found = [path for top in tops for path in [top, *top.rglob("*")]]
    assert len(found) > len(tops), "nothing is there"
    return [f"{path} {path.lstat().st_mode & 0o777:o}" for path in found if path.lstat().st_mode & 0o077]


def one_run(top: Path) -> RunDir:
    [found] = (path.parent for path in (top / "evals").glob("*/*/run.json"))
    return RunDir(found)


def test_a_private_run_is_closed_from_its_first_moment_to_its_last(bench: Bench, spy: Path) -> None:
    done = bench(*RUN, "--private")
    assert done.code == 0, done.err
    assert open_to_others(spy / "outputs") == []
    looks = [json.loads(line) for line in (spy / "seen.jsonl").read_text().splitlines()]
    assert len(looks) == 4
    assert [path for look in looks for path, mode in look if mode & 0o077] == []
    last = {Path(path).name for path, _ in looks[-1]}
    assert last >= {"run.json", "config.toml", "journal.jsonl", ".lock", "data", "evals", "suites", ".card.lock"}
    assert any(name.endswith(".parquet") for name in last)
    assert "publish" not in done.out and "load:" in done.out
    assert one_run(spy / "outputs").read_manifest().settings["save.private"] is True


def test_without_it_the_umask_decides(bench: Bench, spy: Path) -> None:
    assert bench(*RUN).code == 0
    modes = {path.lstat().st_mode & 0o777 for path in (spy / "outputs").rglob("*")}
    assert modes == {0o777, 0o666}
    os.umask(0o027)
    assert bench(*RUN, "-o", "made").code == 0
    assert {path.lstat().st_mode & 0o777 for path in (spy / "made").rglob("*")} == {0o750, 0o640}


def test_a_resume_stays_private_also_when_nobody_says_so(bench: Bench, spy: Path) -> None:
    assert bench(*RUN, "--private").code == 0
    run = one_run(spy / "outputs")
    again = [word if word != "4" else "5" for word in RUN]
    done = bench(*again, "--resume")
    assert done.code == 0, done.err
    assert one_run(spy / "outputs").path == run.path
    assert len(run.journal_path.read_bytes().splitlines()) == 15  # 5 examples, made and scored
    assert open_to_others(spy / "outputs") == []
    manifest = run.read_manifest()
    assert manifest.is_private and manifest.origins["save.private"] == {"origin": "cli", "source": "--private"}
    assert "private = true" in run.config_path.read_text()


def test_a_copy_that_lost_its_modes_is_closed_again(bench: Bench, spy: Path) -> None:
    assert bench(*RUN, "--private").code == 0
    run = one_run(spy / "outputs")
    for path in [run.path, *run.path.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    again = [word if word != "4" else "5" for word in RUN]
    assert bench(*again, "--resume-from", str(run.path)).code == 0
    assert open_to_others(run.path) == []


def test_an_open_run_may_become_private(bench: Bench, spy: Path) -> None:
    assert bench(*RUN).code == 0
    run = one_run(spy / "outputs")
    again = [word if word != "4" else "5" for word in RUN]
    assert bench(*again, "--resume", "--private").code == 0
    assert open_to_others(run.path) == []
    assert run.read_manifest().is_private
    assert (run.parent / "README.md").stat().st_mode & 0o777 == 0o600  # it shows what the run was asked


def test_what_would_open_it_is_refused(bench: Bench, spy: Path) -> None:
    assert bench(*RUN, "--private").code == 0
    run = one_run(spy / "outputs")
    path = str(run.path.relative_to(spy))
    before = run.manifest_path.read_bytes()
    done = bench("resume", "latest", "--set", "save.private=false", "--set", "env.num_examples=5")
    assert (done.code, done.out) == (2, "")
    assert "is a private run and must stay private: remove --set save.private=false" in done.err
    done = bench(*RUN, "--private", "-H")
    assert (done.code, done.err) == (
        2,
        "error: -H would publish a run that --private makes private; remove one of the two settings; a private run can "
        "be published later with `bench push RUN --allow-private`\n",
    )
    done = bench("push", "latest")
    assert (done.code, done.err) == (
        2,
        f"error: {path} was made with --private, but other people can read a repository: its members or, if it is "
        "public, everybody. To upload the run anyway, add --allow-private\n",
    )
    assert run.manifest_path.read_bytes() == before


def test_a_resume_does_not_publish_it(bench: Bench, spy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_write0123456789abcdef")
    assert bench(*RUN, "--private").code == 0
    done = bench(*[word if word != "4" else "5" for word in RUN], "--resume", "-H", "-D", "me/data")
    path = one_run(spy / "outputs").path.relative_to(spy)
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        f"error: {path} is a private run, and -H would publish it; remove that setting; when the run has ended, `bench "
        "push RUN --allow-private` publishes it",
    )


def test_only_the_private_runs_of_a_suite_are_closed(bench: Bench, spy: Path) -> None:
    (spy / "suite.toml").write_text(
        'model = "reference/oracle"\nnum_examples = 1\n[[eval]]\nid = "./spy.py"\nname = "secret"\n'
        'private = true\n[[eval]]\nid = "./spy.py"\nname = "known"\n'
    )
    (spy / "outputs").mkdir()
    done = bench("run", "suite.toml", "-q", "--json")
    assert done.code == 0, done.err
    secret, known = (spy / run["path"] for run in json.loads(done.out)["runs"])
    assert open_to_others(secret) == []
    assert known.stat().st_mode & 0o777 == 0o777
    assert {path.stat().st_mode & 0o777 for path in known.rglob("*")} == {0o777, 0o666}
    [suite] = (spy / "outputs" / "suites").iterdir()
    assert suite.stat().st_mode & 0o777 == 0o600
    assert (known.parent / "README.md").stat().st_mode & 0o777 == 0o600
    assert (spy / "outputs").stat().st_mode & 0o777 == 0o777  # it was there


def test_the_card_opens_when_the_private_run_is_gone(bench: Bench, spy: Path) -> None:
    (spy / "outputs" / "evals" / "spy--reference--oracle").mkdir(parents=True)
    assert bench(*RUN, "--private").code == 0
    secret = one_run(spy / "outputs")
    assert (secret.parent / "README.md").stat().st_mode & 0o777 == 0o600
    assert bench(*RUN).code == 0
    assert (secret.parent / "README.md").stat().st_mode & 0o777 == 0o600
    assert bench("runs", "rm", str(secret.path), "--yes").code == 0
    assert (secret.parent / "README.md").stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize("how", [("replay",), ("rescore",)])
def test_what_is_made_of_a_private_run_is_private(bench: Bench, spy: Path, how: tuple[str, ...]) -> None:
    assert bench(*RUN, "--private").code == 0
    done = bench(*how, "latest", "-q", "--json")
    assert done.code == 0, done.err
    [run] = json.loads(done.out)["runs"]
    assert RunDir(spy / run["path"]).read_manifest().is_private
    assert open_to_others(spy / "outputs") == []


@pytest.mark.plugins
def test_an_export_of_a_private_run_is_private(bench: Bench, spy: Path) -> None:
    assert bench(*RUN, "--private").code == 0
    assert bench(*RUN[:-1], "-o", "known", "-q").code == 0
    for form in ("csv", "jsonl", "parquet", "verifiers", "every-eval-ever", "inspect"):
        for name, wanted in (("outputs", {0o700, 0o600}), ("known", {0o777, 0o666})):
            out = spy / "out" / form / name / "export"
            out.parent.parent.mkdir(parents=True, exist_ok=True)
            done = bench("export", "latest", "--output-dir", name, "-f", form, "-o", str(out))
            assert done.code == 0, done.err
            assert {path.stat().st_mode & 0o777 for path in [out.parent, *out.parent.rglob("*")]} == wanted, form


@pytest.mark.plugins
def test_results_and_traces_of_an_agent_evaluation(evals: Evals) -> None:
    done = evals.eval("--private", "-o", "made/results.json", "--debug-dir", "traces", "--limit", "2")
    assert done.code == 0, done.err
    top = evals.cwd
    assert open_to_others(top / "outputs", top / "made", top / "traces") == []
    assert len(list((top / "traces").iterdir())) == 2
    done = evals.test("--set", "save.private=true", "-o", "tested/results.json", "--debug-dir", "traces", "-q")
    assert done.code == 0, done.err
    assert open_to_others(top / "tested", top / "traces") == []


@pytest.mark.plugins
def test_traces_do_not_go_where_others_may_look(evals: Evals) -> None:
    (evals.cwd / "traces").mkdir()
    done = evals.eval("--private", "--debug-dir", "traces")
    assert done.code == 2 and evals.model.requests == []
    assert "error: --debug-dir traces: other users may enter this folder" in done.err and "chmod 700 traces" in done.err
    assert not (evals.cwd / "outputs").exists()


def test_records_and_events_of_several_models(multi: Multi) -> None:
    multi.tasks("2 + 2", "3 + 3")
    multi.models("strong", "weak")
    (multi.cwd / "events.jsonl").write_text("")
    done = multi.multi("--private", "--persist", "--events", "events.jsonl")
    assert done.code == 0, done.err
    assert "publish" not in done.out
    assert open_to_others(multi.cwd / "outputs", multi.cwd / ".memory") == []
    assert (multi.cwd / "events.jsonl").stat().st_mode & 0o777 == 0o600
    names = {path.name for path in (multi.cwd / ".memory").rglob("*")}
    assert names >= {"index.jsonl", ".index.lock"}


def test_an_index_that_was_open_is_closed(multi: Multi) -> None:
    multi.tasks("2 + 2")
    multi.models("strong", "weak")
    assert multi.multi("--persist").code == 0
    index = multi.cwd / ".memory" / "multi-model-eval" / "index.jsonl"
    assert index.stat().st_mode & 0o777 == 0o666
    assert multi.multi("--private", "--persist").code == 0
    assert index.stat().st_mode & 0o777 == 0o600


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    oracle = ExternalLLMClient("reference/oracle")
    runner = EvalRunner(Asker(), oracle, [EXACT], debug_dir="traces")
    asyncio.run(runner.run_eval(rows_of(2), output_dir="eval", private=True))
    tasks = [{"id": "a", "prompt": "2 + 2", "expected": "4"}]
    models = [{"id": "oracle", "modelId": "reference/oracle"}]
    told = {"outputDir": "multi", "persist": True, "persistDir": "kept", "events": "ev/ents.jsonl", "private": True}
    result = asyncio.run(evaluate(tasks, models, told))
    assert result["persist"].get("stored") is True
    made = [tmp_path / name for name in ("eval", "traces", "multi", "kept", "ev")]
    assert open_to_others(*made) == []
    with pytest.raises(ValueError, match=r"private=True .* pass their parent folder as output_dir"):
        asyncio.run(EvalRunner(Asker(), oracle, [EXACT]).run_eval(rows_of(1), private=True))
    with pytest.raises(ConfigError, match="private applies to stored files"):
        asyncio.run(evaluate(tasks, models, {"private": True}))
    (tmp_path / "open").mkdir()
    with pytest.raises(UsageError, match=r"^debug_dir open: other users may enter"):
        runner = EvalRunner(Asker(), oracle, [EXACT], debug_dir="open")
        asyncio.run(runner.run_eval(rows_of(2), output_dir="eval", private=True))


def test_closing_leaves_alone_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    run = RunDir.create(tmp_path / "out", "env", "model")
    (run.path / "link").symlink_to(tmp_path / "other")
    (run.path / "data").mkdir()
    (run.path / "data" / "rows").write_text("")
    run.close_to_others()
    assert open_to_others(run.path)[:1] == [f"{run.path / 'link'} 777"]  # a link has no mode of its own
    assert len(open_to_others(run.path)) == 1
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o666


def test_the_modes_are_those_of_the_folder_alone(tmp_path: Path) -> None:
    closed, known = tmp_path / "closed", tmp_path / "known"
    atomic.make_folder(closed / "deep", private=True)
    atomic.make_folder(known)
    for folder in (closed / "deep", known):
        atomic.new_file(folder / "file").close()
    assert open_to_others(closed) == []
    assert (known / "file").stat().st_mode & 0o777 == 0o666
    assert not atomic.is_closed(tmp_path / "missing")
