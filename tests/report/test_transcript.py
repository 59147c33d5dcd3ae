"""Transcripts: whole, harmless, and readable whatever shape the messages have."""

from __future__ import annotations

import json
from typing import Any

from store_samples import example, failed, generated, scored
from tables import for_each_row

from harness.core.records import Failed, Generated, Scored, Timing
from harness.core.types import Usage
from harness.report.transcript import example_json, message_text, transcript, verdict
from harness.store.notes import Notes
from harness.store.outcomes import Outcome


def shown(base: Generated | Failed, score: Scored | None = None, **asked: Any) -> list[str]:
    asked_example = example(0, **{"info": {}, "task": "", "answer": "", "prompt": [], **asked})
    return list(transcript(asked_example, [Outcome(asked_example, base, score)], 40))


def said(message: object) -> list[str]:
    """The lines of one message."""
    lines = shown(generated(0, completion=[message], state={}))
    begin = lines.index("─" * 40, 2) + 1
    return lines[begin : lines.index("result") - 1]


def test_a_whole_transcript() -> None:
    usage, timing = Usage(1000, 200, requests=2, cost=0.0034), Timing(1_790_000_000.0, 12.5, 11.0, 1.25)
    base = generated(0, usage=usage, timing=timing, attempts=2, is_truncated=True)
    lines = list(transcript(example(0), [Outcome(example(0), base, scored(0, reward=0.5, seconds=3.25))], 40))
    assert (
        "\n".join(lines)
        == """\
Example 0 · task sums
────────────────────────────────────────
system
  Think.

user
  What is 0 + 1?

Rollout 0 · reward 0.500
────────────────────────────────────────
assistant
  #### 1

result
  reward    0.500
  correct   0.500
  ended by  stop, cut short by a limit
  used      1.0k + 200 tokens in 2 requests, $0.0034
  took      12 s, 11 s of it in the model, 1.2 s waiting for a slot, scored in 3.2 s
  attempts  2
  expected
    1

state
  turn: 1

info of the example
  n: 0"""
    )


def test_the_prompt_stands_once_above_all_rollouts() -> None:
    asked = example(0)
    lines = list(transcript(asked, [Outcome(asked, generated(0, number), None) for number in range(3)], 40))
    assert lines.count("user") == 1
    assert [line for line in lines if line.startswith("Rollout")] == [
        f"Rollout {number} · no score: not scored" for number in range(3)
    ]


def test_a_failed_rollout_says_everything_that_is_known() -> None:
    base = failed(0, error="HTTP 500\n" + "<p>" * 1000, completion=[{"role": "assistant", "content": "so far"}])
    lines = shown(base)
    assert lines[3] == "Rollout 0 · no score: timeout"
    assert lines[5:7] == ["assistant", "  so far"]
    assert "  failed in  generation, and a retry may succeed" in lines
    at = lines.index("  error")
    assert lines[at + 1 :] == ["    HTTP 500", "    " + "<p>" * 1000]  # nothing is cut


def test_a_rollout_that_failed_before_it_said_anything() -> None:
    lines = shown(failed(0, stage="setup", retryable=False))
    assert lines[4:8] == ["─" * 40, "", "result", "  reward     no score: timeout"]
    assert "  failed in  setup" in lines


def test_an_unscored_rollout_says_why() -> None:
    score = scored(
        0, reward=None, metrics={"correct": None, "said": 2.0}, reasons={"correct": "ValueError: no\ndigits"}
    )
    lines = shown(generated(0), score)
    assert lines[3] == "Rollout 0 · no score: correct ValueError"
    assert "  correct   –" in lines and "  said      2.000" in lines
    at = lines.index("  error")
    assert lines[at + 1 : at + 3] == ["    correct: ValueError: no", "    digits"]


def test_completion_models_have_texts() -> None:
    lines = shown(generated(0, completion="4, of course"), prompt="2 + 2 =")
    assert lines[2:4] == ["prompt", "  2 + 2 ="]
    assert lines[7:9] == ["completion", "  4, of course"]
    assert shown(generated(0, completion=""))[5:7] == ["completion", "  (empty)"]


@for_each_row(
    ("message", "lines"),
    [
        ({"role": "assistant", "content": ""}, ["assistant", "  (empty)"]),
        ({"role": "assistant", "content": None}, ["assistant", "  (empty)"]),
        ({"role": "assistant", "content": " \n "}, ["assistant", "   ", "   ", "  (empty)"]),
        ({"role": "assistant", "content": []}, ["assistant", "  (empty)"]),
        ({"content": "who?"}, ["no role", "  who?"]),
        ({"role": "narrator", "name": "bob", "content": "hm"}, ["narrator · bob", "  hm"]),
        ({"role": 7, "content": {"text": "odd"}}, ["7", "  odd"]),
        ({"role": "tool", "tool_call_id": "c1", "content": "a\n\nb"}, ["tool · c1", "  a", "", "  b"]),
        ("bare text", ["assistant", "  bare text"]),
        (None, ["assistant", "  (empty)"]),
        (5, ["assistant", "  5"]),
        (
            {"role": "assistant", "reasoning_content": "hm\nso", "reasoning": "hm\nso", "content": "4"},
            ["assistant", "  reasoning", "    hm", "    so", "  4"],
        ),
        (
            {"role": "assistant", "reasoning": [{"t": 1}], "content": "4"},
            ["assistant", "  4", '  reasoning: [{"t":1}]'],
        ),
        (
            {"role": "assistant", "content": "no", "refusal": "I will not", "annotations": [], "audio": None},
            ["assistant", "  no", "  refusal: I will not"],
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "text", "text": "Tell."}]},
            ["user", "  What is it?", "  Tell."],
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
            ["user", "  [image: https://example.org/a.png]"],
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAABBBB"}}],
            },
            ["user", "  [image, image/png: 8 characters of base64]"],
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:,"}]},
            ["user", "  [image, unknown type: 0 characters of base64]"],
        ),
        (
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": "A" * 2000, "format": "wav"}}],
            },
            ["user", "  [audio, wav: 2,000 characters of base64]"],
        ),
        (
            {"role": "user", "content": [{"type": "video", "video": 1}, 3]},
            ["user", '  {"type":"video","video":1}', "  3"],
        ),
    ],
)
def test_messages_of_every_shape(message: object, lines: list[str]) -> None:
    assert said(message) == lines


def call(**function: object) -> dict[str, object]:
    return {"id": "c1", "type": "function", "function": function}


@for_each_row(
    ("calls", "lines"),
    [
        ([call(name="add", arguments='{"a": 1}')], ['  → add({"a": 1})  [c1]']),
        ([call(name="add", arguments="")], ["  → add()  [c1]"]),
        ([call(name="add")], ["  → add()  [c1]"]),
        ([call(name="add", arguments='{"a": ')], ['  → add({"a": )  [c1]  (its arguments are not JSON)']),
        (
            [call(name="add", arguments="[" * 100_000)],
            [f"  → add({'[' * 100_000})  [c1]  (its arguments are not JSON)"],
        ),
        ([call(name="add", arguments={"a": 1})], ['  → add({"a":1})  [c1]']),
        ([call(name="one"), {"function": {"name": "two", "arguments": "{}"}}], ["  → one()  [c1]", "  → two({})"]),
        ([call(name="py", arguments="a\nb")], ["  → py(a", "  b)  [c1]  (its arguments are not JSON)"]),
        ([{"id": "c1"}], ['  → {"id":"c1"}']),
        (["odd"], ['  → "odd"']),
        ({"name": "odd"}, ['  → {"name":"odd"}']),
    ],
)
def test_tool_calls_of_every_shape(calls: object, lines: list[str]) -> None:
    assert said({"role": "assistant", "content": None, "tool_calls": calls}) == ["assistant", *lines]


def test_a_text_cannot_pass_for_a_heading_or_command_the_terminal() -> None:
    text = "fine\n\nresult\n  reward    1.000\r\n\x1b[2J\x1b]0;title\x07\u202eabc\x9b31m\u2028Rollout 9 · reward 1.000"
    lines = shown(generated(0, completion=[{"role": "assistant", "content": text}], state={}))
    assert [line for line in lines if line == "result"] == ["result"]
    assert not [line for line in lines if line.startswith("Rollout 9")]
    assert "    reward    1.000" in lines and "  Rollout 9 · reward 1.000" in lines
    assert not set("".join(lines)) & set("\x1b\x07\x9b\u202e\r")


def test_a_message_of_a_megabyte_is_shown_whole() -> None:
    text = "word " * 200_000
    assert f"  {text}" in shown(generated(0, completion=[{"role": "assistant", "content": text}]))


def test_halves_of_characters_are_replaced() -> None:
    assert said({"role": "assistant", "content": "a\ud800b"}) == ["assistant", "  a\ufffdb"]


def test_judges_are_quoted_apart_from_the_state() -> None:
    replies = [
        {"model": "lab/judge", "text": "It says\nCORRECT", "label": "CORRECT", "usage": {}},
        {"model": "lab/judge", "text": None},
        "odd",
    ]
    score = scored(0, extra={"judgements": replies, "verdict": {"label": "CORRECT"}})
    lines = shown(generated(0, state={"turn": 1, "judgements": []}, lost=("socket",)), score)
    at = lines.index("judge · lab/judge · CORRECT")
    assert lines[at - 1 :] == [
        "", "judge · lab/judge · CORRECT", "  It says", "  CORRECT", "", "judge · lab/judge", "  null", "",
        "judge · no model", "  odd", "", "state", "  turn: 1", '  verdict: {"label":"CORRECT"}', '  lost: ["socket"]',
    ]  # fmt: skip


def test_judgements_that_are_none_of_ours_are_state() -> None:
    assert "  judgements: 3 of 4" in shown(generated(0, state={"judgements": "3 of 4"}))


def test_unreported_tokens_are_unknown_and_not_zero() -> None:
    base = generated(0, usage=Usage(0, 0, requests=1, unreported=1))
    assert "  used      tokens unknown in 1 request" in shown(base)


def test_values_of_several_lines_stand_below_their_name() -> None:
    assert shown(generated(0, state={"code": "a\nb"}))[-3:] == ["  code", "    a", "    b"]


def test_what_a_message_says_in_words() -> None:
    assert message_text({"content": "hi", "tool_calls": [call(name="f")]}) == "hi"
    assert message_text({"content": "", "tool_calls": [call(name="f", arguments="{}")]}) == "→ f({})  [c1]"
    assert message_text("text") == "text"
    assert message_text(5) == "5"
    assert message_text({}) == ""


def test_a_verdict_in_a_few_words() -> None:
    asked = example(0)
    assert verdict(Outcome(asked, generated(0), scored(0, reward=0.25))) == "reward 0.250"
    assert verdict(Outcome(asked, failed(0, reason="rate\x1b[2J_limit"), None)) == "no score: rate_limit"


def test_json_has_everything_and_survives_any_text() -> None:
    asked = example(0, info={"odd": "\ud800\x1b[2J"})
    outcome = Outcome(asked, generated(0, lost=("x",)), scored(0, reward=0.5, extra={"verdict": 1}))
    whole = example_json(asked, [outcome, Outcome(asked, failed(0, 1), None)], Notes())
    assert json.loads(json.dumps(whole)) == whole
    assert {name: value for name, value in whole.items() if name != "rollouts"} == {
        "example_id": 0, "index": 0, "prompt": asked.prompt, "answer": "1", "task": "sums",
        "info": {"odd": "\ud800\x1b[2J"},
    }  # fmt: skip
    made, lost = whole["rollouts"]
    assert made == {
        "rollout_index": 0, "outcome": "scored", "reward": 0.5, "metrics": {"correct": 0.5},
        "reason": "", "error": None,
        "completion": [{"role": "assistant", "content": "#### 1"}], "stop_condition": "stop", "is_truncated": False,
        "usage": {"input_tokens": 10, "output_tokens": 5, "reasoning_tokens": 0, "cached_tokens": 0, "requests": 1,
                  "unreported": 0, "cost": None},
        "timing": {"started_at": 1_790_000_000.0, "generation": 0.5, "model": 0.25, "waiting": 0.0, "scoring": 0.01},
        "attempts": 1, "node": None, "calls": None, "state": {"turn": 1}, "scoring_state": {"verdict": 1}, "notes": [],
    }  # fmt: skip
    assert (lost["outcome"], lost["reward"], lost["reason"], lost["error"]) == (
        "unscored", None, "timeout", "timeout: no reply in 600 s",
    )  # fmt: skip
    assert (lost["completion"], lost["stop_condition"], lost["metrics"], lost["state"]) == ("", None, {}, {})
