"""Tasks of lm-eval as environments: names, arguments, prompts, requests, rewards, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from loopback_model import LoopbackModel

from harness import evaluate
from harness.core.errors import EnvironmentFault, HarnessError
from harness.engine.environment_loader import load_environment
from harness.plugins.lm_eval_tasks.likelihood import TokenSplitter
from harness.plugins.lm_eval_tasks.source import SOURCE

pytestmark = [pytest.mark.slow, pytest.mark.plugins]


class Keeper(LoopbackModel):
    """Answers `The final answer is 42.`, without log-probabilities, and keeps the requests."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []
        self.fields = fields

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        self.bodies.append(body)
        text = "The final answer is 42."
        choice = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        choice |= {"index": 0, "finish_reason": "stop", **self.fields}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


def run(name: str, tasks: Path, url: str, folder: Path, **arguments: Any) -> Any:
    """Evaluate one task on all its documents."""
    settings = {key: arguments.pop(key) for key in ("sampling_args",) if key in arguments}
    [found] = evaluate(
        f"lm-eval/{name}", "my-model", api_base_url=url, progress=False,
        output_dir=str(folder), env_args={"include_path": str(tasks), **arguments}, **settings,
    )  # fmt: skip
    return found


def journal(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = [orjson.loads(line) for line in (path / "journal.jsonl").read_bytes().splitlines()]
    return [line for line in lines if line["type"] == kind]


def test_a_generation_task_sends_its_prompt_and_stop_sequences(tasks: Path, tmp_path: Path) -> None:
    with Keeper() as model:
        done = run("sums", tasks, model.url, tmp_path, limit=2, sampling_args={"temperature": 0.5})
    assert done.state == "done"
    assert done.summary.reward.estimate.mean == 0.5
    assert list(done.summary.metrics) == ["exact_match_strict_match", "exact_match_flexible_extract"]
    body = next(each for each in model.bodies if "What is 41 + 1?" in each["prompt"])
    assert body["prompt"].count("Question:") == 3
    assert body["prompt"].endswith("Question: What is 41 + 1?\nAnswer:")
    assert (body["max_tokens"], body["stop"], body["seed"]) == (300, ["\n\n"], 1234)
    assert body["temperature"] == 0.5  # that of the run, not of the task
    [first, second] = journal(done.path, "generated")
    assert first["state"]["responses"] == second["state"]["responses"] == [["The final answer is 42."]]


def test_a_chat_template_makes_messages_and_turns_of_examples(tasks: Path, tmp_path: Path) -> None:
    with Keeper() as model:
        done = run("sums", tasks, model.url, tmp_path, limit=1, apply_chat_template=True, num_fewshot=1,
                   system_instruction="Be brief.")  # fmt: skip
        assert done.state == "done"
        [body] = model.bodies
        assert [each["role"] for each in body["messages"]] == ["system", "user", "assistant", "user"]
        assert body["messages"][0]["content"] == "Be brief."
        run("sums", tasks, model.url, tmp_path, limit=1, apply_chat_template=True, fewshot_as_multiturn=False)
        assert [each["role"] for each in model.bodies[-1]["messages"]] == ["user"]


def test_repeats_are_calls_of_one_rollout(tasks: Path, tmp_path: Path) -> None:
    with Keeper() as model:
        done = run("votes", tasks, model.url, tmp_path, limit=1)
    assert len(model.bodies) == 3
    assert done.summary.usage.requests == 3
    assert done.summary.reward.estimate.mean == 1.0


def test_a_choice_is_the_likeliest_continuation(tasks: Path, url: str, tmp_path: Path) -> None:
    done = run("choice", tasks, url, tmp_path)
    assert (done.state, done.summary.scored) == ("done", 12)
    for generated in journal(done.path, "generated"):
        values = [reply[0][0] for reply in generated["state"]["responses"]]
        assert len(values) == 4
        assert all(value < 0 for value in values)
        assert len(orjson.dumps(generated)) < 3000  # neither echoed prompts nor log-probabilities of tokens
    assert {scored["reward"] for scored in journal(done.path, "scored")} == {0.0, 1.0}
    by_text = {scored["key"]: scored["metrics"] for scored in journal(done.path, "scored")}
    by_tokens = run("choice", tasks, url, tmp_path, tokenizer=url)
    assert sorted(map(str, by_text.values())) == sorted(
        str(scored["metrics"]) for scored in journal(by_tokens.path, "scored")
    )
    replies = [
        sorted(str(each["state"]["responses"]) for each in journal(path, "generated"))
        for path in (done.path, by_tokens.path)
    ]
    assert replies[0] == replies[1]


def test_lower_is_better_turns_the_reward_around(tasks: Path, url: str, tmp_path: Path) -> None:
    done = run("cloze", tasks, url, tmp_path, reward="perplexity")
    assert done.summary.reward.estimate.mean == -done.summary.metrics["perplexity"].estimate.mean
    with pytest.raises(HarnessError, match=r"no metric 'acccc'; did you mean .acc."):
        run("cloze", tasks, url, tmp_path, reward="acccc")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("chioce", {}, "no task, group or tag 'chioce'; did you mean choice"),
        ("pages", {}, "the task pages scores whole texts, so it needs a tokenizer"),
        ("mutual_info", {"limit": 0}, "limit must be a number of documents"),
        ("choice", {"apply_chat_template": True}, "its chat template is applied here: set tokenizer"),
        ("sums", {"fewshot_as_multiturn": True}, "set apply_chat_template, too"),
        ("sums", {"include_path": "/nowhere"}, "'/nowhere' is not a folder"),
        ("sums", {"shots": 3}, "it takes num_fewshot, system_instruction"),
        ("cloze", {"tokenizer": "http://127.0.0.1:9"}, "tokenizer: RemoteTokenizer"),
        ("humaneval", {}, "executes code of the model"),
    ],
)
def test_mistakes_are_reported_before_the_first_request(
    tasks: Path, name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(HarnessError, match=words):
        load_environment(f"lm-eval/{name}", **{"include_path": str(tasks), **arguments})


def test_endpoints_without_log_probabilities_end_the_run_with_advice(tasks: Path, tmp_path: Path) -> None:
    with Keeper() as model:
        done = run("choice", tasks, model.url, tmp_path)
    assert done.state == "stopped"
    assert "whose /completions supports echo with logprobs" in done.note
    with Keeper(logprobs={"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1}],
                          "text_offset": [0]}) as model:  # fmt: skip
        done = run("choice", tasks, model.url, tmp_path)
    assert "no text_offset of the prompt" in done.note


def test_an_empty_context_needs_a_tokenizer(tasks: Path, url: str, tmp_path: Path) -> None:
    done = run("mutual_info", tasks, url, tmp_path, limit=1)
    [failed] = journal(done.path, "failed")
    assert "has no context, so it needs a tokenizer" in failed["error"]
    done = run("mutual_info", tasks, url, tmp_path, limit=1, tokenizer=url.removesuffix("/v1"))
    assert done.summary.scored == 1


def test_the_chat_template_of_a_tokenizer_makes_the_context_of_choices(tasks: Path, url: str, tmp_path: Path) -> None:
    done = run("shots", tasks, url, tmp_path, limit=1, tokenizer=url, apply_chat_template=True, num_fewshot=1)
    [example] = journal(done.path, "example")
    assert example["prompt"].startswith("system: Choose the right word.\n\n\nuser: Question: ")
    assert example["prompt"].endswith("user: Question: What is 41 + 1?\nAnswer:\nassistant:")
    assert example["info"]["continuations"][0] == "river"  # no space after the template
    assert done.summary.scored == 1


def test_a_changed_task_is_another_run(tasks: Path, url: str, tmp_path: Path) -> None:
    first = load_environment("lm-eval/overlap", include_path=str(tasks)).fingerprint
    changed = tmp_path / "changed"
    changed.mkdir()
    for file in ("overlap.yaml", "overlap.py"):
        (changed / file).write_text((tasks / file).read_text().replace("2 *", "1 *"))
    other = load_environment("lm-eval/overlap", include_path=str(changed)).fingerprint
    assert first.keys() == other.keys() == {"lm_eval", "task"}
    assert first["task"] != other["task"]


def test_the_source_names_the_library() -> None:
    found = SOURCE.find("gsm8k")
    assert found is not None
    assert found.dist_name == "lm_eval"


def test_a_local_tokenizer_splits_texts(tasks: Path, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers: Any = pytest.importorskip("tokenizers")
    words = {word: number for number, word in enumerate(["</s>", "a", "b", "c", "d"])}
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="</s>"))
    whole.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=whole, eos_token="</s>").save_pretrained(str(tmp_path))
    splitter = TokenSplitter(str(tmp_path), max_length=6)
    found = splitter.pair("a b ", "c")
    assert (found.ids, found.start) == ([1, 2, 3], 2)
    found = splitter.pair("a b c d a", " b")  # the beginning of the context is cut
    assert (found.ids, found.start) == ([2, 3, 4, 1, 2], 4)
    found = splitter.pair("", "a")
    assert (found.ids, found.start) == ([0, 1], 1)
    with pytest.raises(EnvironmentFault, match="leaves no context"):
        splitter.pair("a", " b c d a b c")
    windows = [(list(each.ids or []), each.start) for each in splitter.windows("a b c d a b")]
    assert windows == [([0, 1, 2, 3, 4], 1), ([2, 3, 4, 1, 2], 3)]
