"""`bench view --bundle`: a static site, served by `python -m http.server` and read in a real browser; its answers are
those of the server, and nothing is written that others may not read."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench_command import Bench, bench, here
from chromium import Browser, Tab, browser
from run_samples import finished, run_at
from sightings import sightings
from store_samples import example, generated, rollouts, scored
from strange_runs import ROLLOUTS, strange_run
from view_pages import click, go, hostile, hostile_run, mixed_run, press, shows, type_text
from view_server import viewing

from harness.core.records import Record
from harness.core.types import JsonDict
from harness.plugins.view.bundle import MARKER
from harness.plugins.view.bundle_data import CHUNK, TEXTS
from harness.plugins.view.note_columns import NOTE_NUMBERS, NOTE_WORDS
from harness.store.rundir import RunDir

__all__ = ["bench", "here"]

OUT = Path("outputs")


@pytest.fixture(scope="module")
def in_browser() -> Iterator[Browser]:
    with browser() as started:
        yield started


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder that `python -m http.server` serves."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "-d", str(folder)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().partition("(")[2].partition(")")[0]
        finally:
            process.terminate()


def written(bench: Bench, *arguments: str, site: str = "site") -> str:
    """Write a bundle; returns what stderr says."""
    done = bench("view", "--bundle", site, *arguments)
    assert done.code == 0, done.err
    assert done.out == f"{site}\n"
    return done.err


def asking(path: str, parameters: JsonDict) -> str:
    """An expression for the answer of the bundle to a request of a page."""
    arguments = f"{json.dumps(path)}, {json.dumps(parameters)}"
    return f"import(new URL('js/bundle.js', location.href)).then((module) => module.answer({arguments}))"


async def refused(tab: Tab, path: str, **parameters: object) -> str:
    """The sentence of an answer that must be an error."""
    return str(await tab.js(f"{asking(path, parameters)}.then(JSON.stringify, (error) => error.message)"))


def alike(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same, but for the last digits of numbers and halves of characters."""
    if isinstance(a, str) and isinstance(b, str):
        return whole(a) == whole(b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(alike(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    return bool(a == b)


def whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def said(text: str) -> list[JsonDict]:
    """A completion of one message."""
    return [{"role": "assistant", "content": text}]


def varied_records() -> Iterator[Record]:
    """260 examples with one to three rollouts: rewards of many values, missing ones, words in two cases, long texts."""
    for index in range(260):
        yield example(index, example_id=f"row-{index % 200}", answer=f"{'Ab' if index % 3 else 'aB'} {index % 7}")
        for rollout in range(1 + index % 3):
            text = f"let me think \u2028 {index}/{rollout} " + "x" * (9_000 if index % 20 == 0 else 10)
            yield generated(
                index,
                rollout,
                completion=said(text),
                stop_condition=["stop", 'the "limit" or (more)', "length"][(index + rollout) % 3],
            )
            reward = None if index % 11 == 0 else (index * 7 % 29 + rollout) / 31
            metrics = {"correct": reward, "odd name": float(index % 2)}
            yield scored(index, rollout, reward, metrics=metrics)


def test_answers_are_those_of_the_server(bench: Bench, in_browser: Browser) -> None:
    run = finished(OUT, varied_records(), planned={"num_examples": 260, "rollouts_per_example": 3})
    written(bench, run.id)
    assert TEXTS < 260 * 2, "texts are in several files"
    path = f"runs/{run.id}"
    with viewing(OUT) as client:
        info = client.get(f"/api/{path}")
        sorts = ["", *(each["name"] for each in info["columns"] if is_bundled(each) and each["kind"] != "flag")]
        groups = {
            by: client.get(f"/api/{path}/groups", by=by, limit=30)["groups"]
            for by in ("stop", "answer", "reward", "metrics")
        }
        stop, metrics = (
            next(each["query"] for each in groups[by] if " " in str(each["value"])) for by in ("stop", "metrics")
        )
        bins: list[str] = info["histogram"]["queries"]
        assert len(bins) == 40
        queries = ["", "is:failed", "outcome:unscored", stop, f"({stop}) {metrics}", f"{bins[8]} is:failed", bins[-1]]
        asked: list[tuple[str, JsonDict]] = [(path, {})]
        for place, sort in enumerate(sorts):
            for page in ("examples", "rollouts"):
                order = {"q": queries[place % len(queries)], "sort": sort, "desc": "1" if place % 2 else ""}
                asked.append((f"{path}/{page}", {**order, "offset": 20 * (place % 3), "limit": 40}))
        asked += [(f"{path}/groups", {"q": q, "by": by, "limit": 5}) for q in queries for by in groups]
        for by in ("example", "rollout", "failed"):
            for direction in (1, -1):
                for q, sort in ((stop, "answer"), ("is:failed", "tokens"), ("", "reward")):
                    for index, r in ((0, 0), (29, 1), (259, 1), (100, 0)):
                        place_of = {"index": index, "r": r, "by": by, "dir": direction}
                        asked.append((f"{path}/step", {"q": q, "sort": sort, "desc": "1", **place_of}))
        asked += [(f"{path}/rollouts/{index}/{index % 3}", {}) for index in (0, 1, 100, 119, 120, 121, 259)]
        expected = [client.get(f"/api/{each}", **parameters) for each, parameters in asked]
        empty = [
            parameters for (_, parameters), answer in zip(asked, expected, strict=True) if answer.get("rows") == []
        ]
        assert all(parameters["offset"] for parameters in empty), "the queries select something"

    async def visit(tab: Tab) -> None:
        await tab.open(address)
        for (each, parameters), answer in zip(asked, expected, strict=True):
            found = await tab.js(asking(each, parameters))
            assert alike(found, in_bundle(answer, parameters, found)), (each, parameters)
        assert "no rollout 7 of example 0" in await refused(tab, f"{path}/rollouts/0/7")
        assert "There is no run other in this bundle." in await refused(tab, "runs/other")
        assert tab.complaints == []

    with served(Path("site")) as address:
        in_browser(visit)


def is_bundled(column: JsonDict) -> bool:
    """Whether a bundle has a column of the server: it has those of the index, without notes."""
    return bool(column["indexed"]) and column["name"] not in NOTE_NUMBERS | NOTE_WORDS


def in_bundle(answer: JsonDict, parameters: JsonDict, found: JsonDict) -> JsonDict:
    """An answer of the server without what a bundle leaves out: paths, the summary, columns without index, intervals
    of groups of a selection, and queries of groups that are rare in the whole run."""
    answer = {**answer}
    if "histogram" in answer:
        columns = [each for each in answer["columns"] if is_bundled(each) and each["kind"] != "flag"]
        answer |= {"columns": columns, "summary": None, "bundle": found["bundle"]}
    if "run" in answer:
        answer["run"] = {**answer["run"], "path": ""}
    if "groups" in answer and parameters.get("q"):
        answer["groups"] = [{**each, "low": None, "high": None} for each in answer["groups"]]
    return answer


def test_strange_and_damaged_runs_are_bundled_as_the_server_shows_them(bench: Bench, in_browser: Browser) -> None:
    strange, empty = strange_run(OUT), run_at(OUT, minute=7, letters="eeee")
    with strange.journal_path.open("ab") as file:
        file.write(b"{broken\n{}\n")
    written(bench, strange.id, empty.id)
    strange_path = f"runs/{strange.id}"
    with viewing(OUT) as client:
        rows = client.get(f"/api/{strange_path}/rollouts")["rows"]
        assert len(rows) == ROLLOUTS
        asked: list[tuple[str, JsonDict]] = [
            (f"{strange_path}/rollouts/{each['index']}/{each['r']}", {"whole": 1}) for each in rows
        ]
        columns = [each["name"] for each in client.get(f"/api/{strange_path}")["columns"] if is_bundled(each)]
        for sort in ("", *(each for each in columns if not each.startswith("is:"))):
            asked += [(f"{strange_path}/{page}", {"sort": sort}) for page in ("examples", "rollouts")]
        asked += [(f"{strange_path}/groups", {"by": by}) for by in ("stop", "reason", "tool", "metrics")]
        asked += [(f"runs/{empty.id}/{page}", {}) for page in ("examples", "rollouts")]
        expected = [client.get(f"/api/{each}", **parameters) for each, parameters in asked]

    async def visit(tab: Tab) -> None:
        await tab.open(f"{address}#/run/{strange.id}")
        await shows(tab, "The journal is damaged, and its rest could not be read.")
        for (each, parameters), answer in zip(asked, expected, strict=True):
            found = await tab.js(asking(each, parameters))
            for both in (answer, found):
                both.pop("index", None)
                both.pop("run", None)
            assert alike(found, answer), (each, parameters)
        await go(tab, f"#/run/{empty.id}")
        await shows(tab, "There are no rollouts yet.")
        assert tab.complaints == []

    with served(Path("site")) as address:
        in_browser(visit)


def test_large_transcripts_have_files_of_their_own(bench: Bench, in_browser: Browser) -> None:
    sizes = [10, CHUNK * 2, 10, 10, CHUNK // 2, CHUNK // 2 + 9, 10]
    records: list[Record] = []
    for index, size in enumerate(sizes):
        reply = generated(index, 0, completion=said(f"begin {index} " + "é" * (size // 2)))
        records += [example(index), reply, scored(index, 0, 1.0)]
    run = finished(OUT, records, planned={"num_examples": len(sizes), "rollouts_per_example": 1})
    written(bench, run.id)
    info = json.loads(Path("site/data/0/run.json").read_text())
    assert info["bundle"]["chunks"] == [[0, 0], [1, 0], [2, 0], [5, 0]]
    assert all(file.stat().st_size < CHUNK * 1.2 for file in Path("site/data/0").glob("transcripts-[023].json"))

    async def visit(tab: Tab) -> None:
        for index in range(len(sizes)):
            await tab.open("about:blank")
            await tab.open(f"{address}#/run/{run.id}/ex/{index}/0")
            await shows(tab, f"begin {index}", ".transcript")
            asked = [each for each in tab.requests if "transcripts-" in each]
            assert len(asked) == 1, "one file for one rollout"
            tab.requests.clear()
        assert tab.complaints == []

    with served(Path("site")) as address:
        in_browser(visit)


def test_a_bundle_is_read_below_any_address(bench: Bench, in_browser: Browser) -> None:
    one, two = mixed_run(OUT, minute=0, letters="aaaa"), finished(OUT, minute=5, letters="bbbb", model="lab/other")
    Path("www/some").mkdir(parents=True)
    said = written(bench, one.id, two.id, site="www/some/site")
    assert said.splitlines()[0].startswith("2 runs, 22 rollouts, ")
    assert said.splitlines()[1:] == ["Look at it: python -m http.server -d www/some/site"]

    async def visit(tab: Tab) -> None:
        await tab.look(1440)
        await tab.open(site)
        await shows(tab, "2 runs in this bundle of ")
        await go(tab, "#/?text=lab%2Fother")
        await shows(tab, "1 of 2 runs")
        await go(tab, f"#/run/{one.id}?by=metrics")
        await shows(tab, "6 examples, 18 rollouts")
        await tab.gives("document.querySelectorAll('.examples .dot-pass').length", 9)
        await tab.js(
            "void [...document.querySelectorAll('.groups button')]"
            ".find(e => e.textContent.startsWith('correct=0')).click()"
        )
        await shows(tab, "6 examples, 8 rollouts of 6 and 18")
        await click(tab, ".histogram .column:last-child")
        await shows(tab, "No rollout matches.")
        await tab.js("history.back()")
        await shows(tab, "6 examples, 8 rollouts of 6 and 18")
        await tab.js("history.back()")
        await shows(tab, "6 examples, 18 rollouts")
        await tab.js(
            "{ const menu = document.querySelector('.bar select'); menu.value = 'answer';"
            " menu.dispatchEvent(new Event('change', {bubbles: true})) }"
        )
        await tab.until("location.hash.includes('sort=answer')")
        await click(tab, "button[aria-label='sort descending'], button[aria-label='sort ascending']")
        order = "[...document.querySelectorAll('.examples tbody a.main')].map(e => e.textContent)"
        await tab.gives(order, ["5", "4", "3", "2", "1", "0"])
        await click(tab, ".examples tbody a.main")
        await shows(tab, "What is 5 + 1?", ".transcript")
        await press(tab, "j")
        await shows(tab, "What is 4 + 1?", ".transcript")
        await press(tab, "n")
        await shows(tab, "Example 4 rollout 1", ".rolloutbar h1")
        await press(tab, "]")
        await shows(tab, "Example 4 rollout 2", ".rolloutbar h1")
        await shows(tab, "I judge rollout 2.", ".side")
        place = await tab.js("location.href")
        await press(tab, "u")
        await shows(tab, "6 examples, 18 rollouts")
        await tab.open("about:blank")
        await tab.open(str(place))
        await shows(tab, "Example 4 rollout 2", ".rolloutbar h1")
        await tab.gives("document.querySelectorAll('.rolloutbar .dot').length", 3)
        assert tab.complaints == []
        outside = [each for each in tab.requests if not each.startswith((site, "data:", "about:"))]
        assert outside == [], "nothing is asked for outside the site"

    with served(Path("www")) as address:
        site = f"{address}some/site/"
        in_browser(visit)


def test_other_queries_are_said_to_need_the_server(bench: Bench, in_browser: Browser) -> None:
    run = mixed_run(OUT)
    written(bench, run.id)

    async def visit(tab: Tab) -> None:
        await tab.open(f"{address}#/run/{run.id}")
        await shows(tab, "6 examples, 18 rollouts")
        await press(tab, "/")
        await type_text(tab, "reward<0.5")
        await press(tab, "Enter")
        await shows(tab, "Queries need bench view: a bundle has the groups of its columns only.", "#query-error")
        await click(tab, ".clear")
        await shows(tab, "6 examples, 18 rollouts")
        await click(tab, ".quick button")
        await shows(tab, "9 rollouts of 6 and 18")
        for q in ("reward=1)", "(reward=1", "reward=1x", "-(reward=1)", "reward=1 or reward=0"):
            assert (await refused(tab, f"runs/{run.id}/examples", q=q)).startswith("Queries need bench view"), q
        assert tab.complaints == []

    with served(Path("site")) as address:
        in_browser(visit)


def test_hostile_text_stays_text(bench: Bench, in_browser: Browser) -> None:
    run = hostile_run(OUT)
    written(bench, run.id)

    async def visit(tab: Tab) -> None:
        await tab.open(address)
        await shows(tab, hostile("environment"))
        await go(tab, f"#/run/{run.id}?by=stop")
        for field in ("model", "reason", "stop", "setting", "command", "id", "answer", "task"):
            await shows(tab, hostile(field))
        await tab.js("void document.querySelector('.groups button').click()")
        await shows(tab, "1 rollout of 1 and 2")
        for place, field in (("0/0", "reply"), ("0/1", "error")):
            await go(tab, f"#/run/{run.id}/ex/{place}")
            await shows(tab, f"{field} <img src=x")
        assert await tab.js("window.hacked === undefined")
        assert await tab.js("document.querySelectorAll('main img, main script, main [onerror]').length") == 0
        assert all(each.startswith((address, "data:")) for each in tab.requests)
        assert tab.complaints == []

    with served(Path("site")) as address:
        in_browser(visit)


def test_known_secrets_are_removed_again(here: Path) -> None:
    secret = "canary7x7f3a/4+c=\"'\\"
    records: list[Record] = [
        example(0, example_id=secret, prompt=secret, answer=secret, task=secret, info={secret: [secret]}),
        generated(0, 0, completion=said(secret), stop_condition=secret, state={secret: {"x": secret}}),
        scored(0, 0, 1.0, metrics={secret: 1.0}),
        generated(0, 1, completion=said(f"{secret} and more"), stop_condition=f"{secret}!"),
        scored(0, 1, 0.0, extra={"judgements": [{"model": secret, "text": secret}]}),
    ]  # fmt: skip
    planned = {"num_examples": 1, "rollouts_per_example": 2}
    run = finished(OUT, records, planned=planned, name=secret, settings={"env.x": secret}, command=secret)
    command = [sys.executable, "-m", "harness.cli.main", "view", "--bundle", "site", run.id]
    subprocess.run(command, check=True, env={**os.environ, "SOME_API_KEY": secret}, capture_output=True)
    words = {"secret": "canary7x7f3a"}
    assert sightings(words, run.path), "the journal has it"
    assert sightings(words, Path("site")) == []
    assert "[redacted]" in Path("site/data/0/transcripts-0.json").read_text()
    assert "[redacted]" in Path("site/data/0/queries.json").read_text()
    assert str(here) not in "".join(each.read_text() for each in Path("site/data").rglob("*.json"))


def test_private_runs_are_refused_by_name(bench: Bench) -> None:
    one = finished(OUT, minute=0, letters="aaaa")
    two = finished(OUT, minute=5, letters="bbbb", settings={"save.private": True})
    done = bench("view", "--bundle", "site", one.id, two.id)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: made with --private, but a bundle is for other people to read: {two.id}. To bundle private runs "
        "anyway, add --allow-private\n"
    )
    assert not Path("site").exists()
    before = os.umask(0)
    try:
        said = written(bench, one.id, two.id, "--allow-private")
    finally:
        os.umask(before)
    assert "note: the bundle has a private run, so only you can read the folder\n" in said
    for path in [Path("site"), *Path("site").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_only_a_bundle_is_replaced(bench: Bench) -> None:
    run = finished(OUT)
    outside = Path("outside")
    outside.mkdir()
    (outside / "kept").write_text("kept")
    Path("site").mkdir()
    written(bench, run.id)
    (Path("site/data") / "link").symlink_to(outside.absolute())
    os.mkfifo("site/data/0/pipe")
    before = Path("site").stat().st_ino
    written(bench, run.id)
    assert Path("site").stat().st_ino != before
    assert not os.path.lexists("site/data/link")
    assert (outside / "kept").read_text() == "kept"

    Path("site/CNAME").write_text("example.org")
    foreign = bench("view", "--bundle", "site", run.id)
    assert foreign.code == 2
    assert foreign.err.startswith("error: ")
    assert (
        "has other files than those of a bundle, such as 'CNAME', and the whole folder would be replaced" in foreign.err
    )
    Path("site/CNAME").unlink()
    Path("site", MARKER).write_text("{}")
    assert "such as 'bench-bundle.json'" in bench("view", "--bundle", "site", run.id).err
    Path("site", MARKER).unlink()
    Path("site", MARKER).symlink_to(outside / "kept")
    assert "such as 'bench-bundle.json'" in bench("view", "--bundle", "site", run.id).err

    Path("link").symlink_to(outside)
    Path("file").touch()
    for name in ("link", "file"):
        assert f"{name} is a link or a file" in bench("view", "--bundle", name, run.id).err
    assert "outputs has other files" in bench("view", "--bundle", "outputs", run.id).err
    assert "does not exist; create it first" in bench("view", "--bundle", "no/site", run.id).err
    assert [each.name for each in Path().iterdir() if each.name.startswith(".site")] == [], "nothing is left beside"
    assert RunDir(run.path).read_manifest().id == run.id


def test_a_run_in_progress_is_bundled_with_a_notice(bench: Bench, in_browser: Browser) -> None:
    run = finished(OUT, rollouts(2), status="running", planned={"num_examples": 8, "rollouts_per_example": 1})
    run.summary_path.unlink()
    lock = run.lock()
    try:
        said = written(bench, run.id)
    finally:
        lock.release()
    assert f"note: {run.id} has not ended: the bundle has its rollouts until now\n" in said

    async def visit(tab: Tab) -> None:
        await tab.open(f"{address}#/run/{run.id}")
        await shows(tab, "This run had not ended when the bundle was written; it shows the rollouts until then.")
        await shows(tab, "2 examples, 2 rollouts")
        assert tab.complaints == []

    with served(Path("site")) as address:
        in_browser(visit)


def test_wrong_options_and_unreadable_runs_are_errors(bench: Bench) -> None:
    run = finished(OUT)
    assert "name the runs to bundle" in bench("view", "--bundle", "site").err
    assert "have no effect with --bundle" in bench("view", "--bundle", "site", "--port", "8000", run.id).err
    assert "--allow-private has no effect without --bundle" in bench("view", "--allow-private", run.id).err
    other = finished(Path("other"))
    assert (
        f"two of the runs have the id {run.id}" in bench("view", "--bundle", "site", str(run.path), str(other.path)).err
    )
    run.manifest_path.write_text("{")
    done = bench("view", "--bundle", "site", str(run.path))
    assert done.code == 1
    assert "run.json" in done.err
    assert not Path("site").exists()
