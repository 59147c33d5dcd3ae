"""Tokens, cost and seconds of each turn: from real servers over loopback to the journal, and from there to the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Evals
from bench_command import Bench, bench, evals, here, write
from chromium import Browser, Tab
from paid_model import PaidModel, registry
from run_samples import finished
from store_samples import example, failed, generated, scored
from sums_model import SumsModel
from view_pages import LOOKS, keep, opened, shows, texts
from view_server import viewing

from harness.core.replies import ReplyRecorder
from harness.core.types import JsonDict, ModelResponse, Usage

__all__ = ["bench", "evals", "here", "write"]

Write = Callable[[str, str], Path]

TALKS = """
from pathlib import Path
from harness import MultiTurnEnv, Rubric, SingleTurnEnv, ToolEnv
from harness.errors import ToolServerError

def fine(completion):
    return 1.0

def calculate(expression: str) -> int:
    '''Add numbers.'''
    return sum(map(int, expression.split("+")))

class Talk(MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "and?"}]

class Shaky(Talk):
    '''Fails in the second turn of the first attempt.'''
    async def env_response(self, messages, state, **kwargs):
        flag = Path("failed")
        if not flag.exists():
            flag.touch()
            raise ToolServerError("away")
        return await super().env_response(messages, state, **kwargs)

class Pair(MultiTurnEnv):
    '''A second player, who speaks as an assistant too, and a question on the side.'''
    async def env_response(self, messages, state, **kwargs):
        await self.get_model_response(state, [{"role": "user", "content": "aside"}])
        return [{"role": "assistant", "content": "the other player"}, {"role": "user", "content": "and?"}]

    def reference_reply(self, example, messages):
        aside = messages[-1]["content"] == "aside"
        return "between us" if aside else f"turn {sum(m['content'] == 'and?' for m in messages)}"

def load_environment(kind="talk"):
    rows, rubric = [{"question": "2 + 2", "answer": "yes"}], Rubric([fine])
    if kind == "single":
        return SingleTurnEnv(dataset=rows, rubric=rubric)
    if kind == "tools":
        return ToolEnv(tools=[calculate], dataset=rows, rubric=rubric)
    return {"talk": Talk, "shaky": Shaky, "pair": Pair}[kind](max_turns=3, dataset=rows, rubric=rubric)
"""


@pytest.fixture
def talk(bench: Bench, write: Write) -> Callable[..., Path]:
    """Run one rollout of the environment `TALKS`; returns the run folder."""
    write("talks.py", TALKS)

    def run(kind: str, *arguments: str, url: str = "") -> Path:
        if url:
            write("configs/endpoints.toml", registry(url))
        model = "paid" if url else "reference/oracle"
        done = bench("run", "./talks.py", "-a", f"kind={kind}", "-m", model, "-r", "1", "-q", "--json", *arguments)
        assert done.code == 0, done.err
        return Path(json.loads(done.out)["runs"][0]["path"])

    return run


def line_of(run: Path) -> JsonDict:
    """The journal line of the only rollout."""
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    [line] = [each for each in lines if each["type"] == "generated"]
    return line


def page_of(run: Path) -> Any:
    with viewing("outputs") as client:
        return client.get(f"/api/runs/{run.name}/rollouts/0/0")


def turns(page: JsonDict) -> list[JsonDict]:
    return [each for each in page["messages"] if each["turn"]]


def taken(page: JsonDict) -> list[tuple[int, int] | None]:
    """Tokens of each turn."""
    return [each["tokens"] and (each["tokens"]["input"], each["tokens"]["output"]) for each in turns(page)]


def without_calls(run: Path) -> None:
    """Make the journal one of an earlier version."""
    path = run / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "calls"}) + "\n" for line in lines))


def test_turns_have_the_tokens_cost_and_seconds_of_their_calls_also_after_resume_replay_and_rescore(
    bench: Bench, talk: Callable[..., Path]
) -> None:
    usage = {"completion_tokens_details": {"reasoning_tokens": 2}, "prompt_tokens_details": {"cached_tokens": 4}}
    with PaidModel(usage) as model:
        run = talk("talk", url=model.url)
        line = line_of(run)
        calls = line["calls"]
        seconds = calls["seconds"]
        assert calls == {
            "input_tokens": [10] * 3, "output_tokens": [5] * 3, "reasoning_tokens": [2] * 3, "cached_tokens": [4] * 3,
            "cost": [pytest.approx(0.1)] * 3, "seconds": seconds,
        }  # fmt: skip
        assert sum(seconds) == pytest.approx(line["timing"]["model"], abs=0.0002)
        page = page_of(run)
        assert taken(page) == [(10, 5)] * 3
        assert [(each["tokens"]["reasoning"], each["tokens"]["cached"]) for each in turns(page)] == [(2, 4)] * 3
        assert sum(each["cost"] for each in turns(page)) == pytest.approx(page["usage"]["cost"])
        assert [each["seconds"] for each in turns(page)] == seconds
        assert page["calls"] == {"others": [], "count": 0, "rest": None}

        journal = run / "journal.jsonl"
        kept = [each for each in journal.read_text().splitlines(keepends=True) if '"type":"scored"' not in each]
        journal.write_text("".join(kept))
        assert bench("resume", run.name, "-q").code == 0
        assert model.requests == 3, "the recorded rollout was scored"
        assert page_of(run)["messages"] == page["messages"]
        for command in ("replay", "rescore"):
            done = bench(command, run.name, "-q", "--json")
            assert done.code == 0, done.err
            derived = Path(json.loads(done.out)["runs"][0]["path"])
            assert line_of(derived)["calls"] == calls, command
        assert bench("runs", "show", run.name, "--example", "0", "--json").out.count('"calls"') == 1

        without_calls(run)
        for command in ("replay", "rescore"):
            done = bench(command, run.name, "-q", "--json")
            assert done.code == 0, done.err
            assert "calls" not in line_of(Path(json.loads(done.out)["runs"][0]["path"])), "nothing is made up"
        old = page_of(run)
        assert (taken(old), old["calls"], old["usage"]) == ([None] * 3, None, page["usage"])


def test_the_line_of_a_single_turn_is_as_before_and_its_totals_are_beside_the_turn(talk: Callable[..., Path]) -> None:
    with PaidModel() as model:
        run = talk("single", url=model.url)
    line = line_of(run)
    assert [*line] == [
        "type", "key", "example_key", "rollout_index", "completion", "stop_condition", "is_truncated", "usage",
        "timing", "attempts", "state", "lost",
    ]  # fmt: skip
    page = page_of(run)
    [turn] = turns(page)
    assert (taken(page), turn["cost"], turn["seconds"]) == ([(10, 5)], pytest.approx(0.1), page["model_seconds"])
    assert page["calls"] is None


def test_tool_calls_have_their_figures(talk: Callable[..., Path]) -> None:
    with SumsModel() as model:
        run = talk("tools", url=model.url)
    page = page_of(run)
    assert [bool(each["tool_calls"]) for each in turns(page)] == [True, False]
    assert taken(page) == [(10, 5)] * 2
    assert (page["usage"]["input_tokens"], page["calls"]["rest"]) == (20, None)


def test_an_agent_has_the_figures_of_its_calls(evals: Evals) -> None:
    done = evals.eval()
    assert done.code == 0, done.err
    [run] = evals.runs()
    page = page_of(run)
    assert [bool(each["tool_calls"]) for each in turns(page)] == [True, False]
    assert taken(page) == [(10, 5)] * 2
    assert page["calls"]["count"] == 0


def test_only_the_attempt_that_counts_is_beside_the_turns(talk: Callable[..., Path]) -> None:
    with PaidModel(empty=frozenset([3])) as model:  # the second reply of the second attempt cannot be used
        run = talk("shaky", "--max-retries", "1", url=model.url)
        assert model.requests == 5
    page = page_of(run)
    assert (page["attempts"], taken(page)) == (2, [(10, 5)] * 3)
    assert page["usage"]["input_tokens"] == 50
    assert page["calls"]["rest"] == {
        "requests": 2, "input_tokens": 20, "output_tokens": 10, "cost": pytest.approx(0.2),
    }  # fmt: skip


def test_calls_that_made_no_message_are_listed(talk: Callable[..., Path], bench: Bench) -> None:
    run = talk("pair")
    page = page_of(run)
    other = "the other player"
    assert [each["content"] for each in turns(page)] == ["turn 0", other, "turn 1", other, "turn 2"]
    assert [each is None for each in taken(page)] == [False, True, False, True, False]
    assert [(each["number"], each["text"]) for each in page["calls"]["others"]] == [
        (2, "between us"),
        (4, "between us"),
    ]
    known = [*turns(page), *page["calls"]["others"]]
    assert sum(each["tokens"]["output"] for each in known if each["tokens"]) == page["usage"]["output_tokens"]
    done = bench("replay", run.name, "-q", "--json")
    assert line_of(Path(json.loads(done.out)["runs"][0]["path"]))["calls"] == line_of(run)["calls"]


def test_any_value_of_a_journal_is_shown_or_left_out(out: Path) -> None:
    said = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "<b>b</b>"}]
    odd: list[Any] = [
        {"input_tokens": [1 << 80, 7, "x"], "output_tokens": [True, -1], "seconds": {"a": 1}, "cost": [None, 1e308]},
        {"input_tokens": 5}, [1], "text", {}, {"seconds": [0.5]},
    ]  # fmt: skip
    replies: list[Any] = [["?"], None, [{"error": 5}, {"message": "x"}], "text"]
    records = [example()]
    for number in range(len(odd) * len(replies)):
        fields = {"calls": odd[number % len(odd)], "replies": replies[number // len(odd)], "completion": said}
        records += [generated(0, number, **fields)] if number % 2 else [failed(0, number, **fields)]
    run = finished(out, [*records, scored()])
    with viewing(out) as client:
        found = [client.get(f"/api/runs/{run.id}/rollouts/0/{r}") for r in range(len(odd) * len(replies))]
    assert [taken(page) for page in found[6:12]] == [[None, (7, None)], *[[None, None]] * 5]
    assert [each["seconds"] for each in turns(found[11])] == [0.5, None]
    assert found[0]["calls"]["count"] == 3, "its replies say nothing"


def test_a_failed_call_is_no_reply_of_an_earlier_attempt(out: Path) -> None:
    said = [{"role": "assistant", "content": "a"}]
    usage = Usage(30, 15, requests=3)  # two in the first attempt, and one before the call that failed
    calls = {"input_tokens": [10, None], "output_tokens": [5, None], "seconds": [0.5, None]}
    run = finished(out, [example(), failed(completion=said, calls=calls, usage=usage, attempts=2)])
    with viewing(out) as client:
        page = client.get(f"/api/runs/{run.id}/rollouts/0/0")
    assert (taken(page), [each["number"] for each in page["calls"]["others"]]) == ([(10, 5)], [2])
    assert page["calls"]["rest"] == {"requests": 2, "input_tokens": 20, "output_tokens": 10, "cost": None}


def test_quantities_that_no_call_has_take_no_space() -> None:
    recorder = ReplyRecorder()
    for number in range(5_000):
        reply = ModelResponse({"role": "assistant", "content": str(number)}, "stop", Usage(1, 1, requests=1))
        recorder.end(recorder.begin("prompt"), reply)
    total = Usage(5_000, 5_000, requests=5_000)
    assert recorder.calls(total) == {"input_tokens": [1] * 5_000, "output_tokens": [1] * 5_000}
    assert ReplyRecorder().calls(Usage()) is None


def test_a_page_shows_the_figures_of_turns(out: Path, in_browser: Browser) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    said = [
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "20"},
        {"role": "assistant", "content": "20 degrees."},
    ]
    hostile = "<img src=x onerror='window.hacked=1'>"
    replies = [{"message": said[0]}, {"message": {"role": "assistant", "content": hostile}}, {"message": said[2]}]
    calls = {
        "input_tokens": [1200, 900, 1500], "output_tokens": [80, 20, 30], "reasoning_tokens": [60, 0, 0],
        "cached_tokens": [0, 0, 1200], "cost": [0.012, 0.001, 0.004], "seconds": [3.2, 0.4, 12.0],
    }  # fmt: skip
    usage = Usage(4200, 140, reasoning_tokens=60, cached_tokens=1200, requests=4, cost=0.018)
    fields = {"completion": said, "replies": replies, "calls": calls, "usage": usage, "attempts": 2}
    run = finished(out, [example(), generated(0, 0, **fields), scored()])

    async def visit(tab: Tab) -> None:
        for width, scheme in [*LOOKS, (390, "dark")]:
            await opened(tab, client, f"#/run/{run.id}/ex/0/0", width, scheme)
            await tab.gives(
                texts(".message .figures"),
                [
                    "1,200 → 80 tokens, 60 reasoning · 3.2 s · $0.012",
                    "1,500 → 30 tokens, 1,200 cached · 12 s · $0.0040",
                ],
            )
            await tab.gives(texts(".calls li"), [f"900 → 20 tokens · 0.4 s · $0.0010 {hostile}"])
            rest = "600 in, 10 out, 1 request, $0.0010 in earlier attempts or discarded replies"
            await shows(tab, rest, ".side")
            await tab.gives("document.documentElement.scrollWidth <= innerWidth", True)
            keep(f"turn-figures-{width}-{scheme}.png", await tab.screenshot())
        assert await tab.js("window.hacked === undefined")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_a_turn_that_two_rollouts_share_has_the_figures_of_both(out: Path, in_browser: Browser) -> None:
    said = [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "b"},
    ]
    runs = [
        finished(out, [example(), generated(completion=said, calls={"seconds": seconds}), scored()], letters=letters)
        for letters, seconds in (("aaaa", [1.0, 2.0]), ("bbbb", [3.0, 4.0]))
    ]

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/compare/{runs[0].id},{runs[1].id}/ex/0?turn=1")
        await tab.gives(texts(".figures"), ["A 1.0 s", "B 3.0 s", "A 2.0 s", "B 4.0 s"])
        keep("turn-figures-compared.png", await tab.screenshot())
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)
