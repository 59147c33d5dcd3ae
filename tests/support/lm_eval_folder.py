"""A folder of lm-eval tasks with data of their own: all four kinds of requests, several metrics, two groups."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["river", "stone", "window", "garden", "letter", "winter", "bridge", "candle", "forest", "mirror"]

TASKS = {
    "sums": """
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
num_fewshot: 2
fewshot_split: train
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 300}
filter_list:
  - name: strict-match
    filter: [{function: regex, regex_pattern: "final answer is (\\\\-?[0-9]+)"}, {function: take_first}]
  - name: flexible-extract
    filter: [{function: regex, group_select: -1, regex_pattern: "([0-9]+)"}, {function: take_first}]
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, ignore_punctuation: false}
""",
    "short": """
output_type: generate_until
description: "Answer with a word.\\n\\n"
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: exact_match}]
""",
    "votes": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
repeats: 3
generation_kwargs: {until: [], do_sample: true, temperature: 0.7}
filter_list:
  - name: maj
    filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: majority_vote}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "overlap": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
process_results: !function overlap.process_results
metric_list:
  - {metric: f1, aggregation: mean, higher_is_better: true}
  - {metric: length, aggregation: !function overlap.longest, higher_is_better: false}
""",
    "translate": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "The final answer is {{answer}} and it is checked against the question."
generation_kwargs: {until: []}
metric_list:
  - {metric: bleu, aggregation: bleu, higher_is_better: true}
  - {metric: chrf, aggregation: chrf, higher_is_better: true}
  - {metric: ter, aggregation: ter, higher_is_better: false}
""",
    "choice": """
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{gold}}"
doc_to_choice: "{{choices}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
""",
    "shots": """
output_type: multiple_choice
description: "Choose the right word.\\n\\n"
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{gold}}"
doc_to_choice: "{{choices}}"
fewshot_split: train
num_fewshot: 3
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_bytes, aggregation: mean, higher_is_better: true}
  - {metric: brier_score, aggregation: brier_score, higher_is_better: false}
""",
    "pairs": """
output_type: multiple_choice
doc_to_text: "Is {{question}} a sum?"
doc_to_target: "{{gold % 2}}"
doc_to_choice: ["no", "yes"]
metric_list:
  - {metric: acc}
  - {metric: f1}
  - {metric: mcc}
""",
    "inputs": """
output_type: multiple_choice
doc_to_text: !function overlap.gold
doc_to_target: "ends here."
doc_to_choice: !function overlap.contexts
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "mutual_info": """
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{gold}}"
doc_to_choice: "{{choices}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_mutual_info, aggregation: mean, higher_is_better: true}
""",
    "cloze": """
output_type: loglikelihood
doc_to_text: "{{text}}"
doc_to_target: " {{answer}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    "ending": """
output_type: loglikelihood
doc_to_text: "The answer to {{question}} is "
doc_to_target: "{{choices[gold]}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "pages": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: word_perplexity}
  - {metric: byte_perplexity}
  - {metric: bits_per_byte}
""",
    "books": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text * 40}}"
metric_list: [{metric: bits_per_byte}, {metric: word_perplexity}]
""",
}
"""Tasks by name, without what all have."""

FUNCTIONS = """
def process_results(doc, results):
    said, right = set(results[0].split()), {doc["answer"], "the"}
    return {"f1": 2 * len(said & right) / (len(said) + len(right)), "length": (len(results[0]), len(said))}


def longest(items):
    return max(length / words for length, words in items)


def gold(doc):
    return doc["gold"] % 2


def contexts(doc):
    return [f"The {word}" for word in doc["choices"][:2]]
"""

GROUPS = {
    "by_size": "{task: [choice, shots], aggregate_metric_list: [{metric: acc, weight_by_size: true}]}",
    "by_task": """{task: [mutual_info, {task: inputs, description: "Well. "}, {group: inner, task: [cloze],
      aggregate_metric_list: [{metric: acc}]}], aggregate_metric_list: [{metric: acc, weight_by_size: false}]}""",
}
"""Groups by name."""


def rows(count: int, start: int = 0) -> list[dict[str, object]]:
    """Questions, each with five choices, an answer that some replies of the embedded server have, and a text."""
    found: list[dict[str, object]] = []
    for number in range(start, start + count):
        choices = [WORDS[(number * 3 + place * place) % len(WORDS)] + "s" * (place % 3) for place in range(4)]
        right = 42 if number % 3 == 0 else number
        found.append(
            {
                "question": f"What is {right - 1} + 1?", "answer": str(right), "choices": choices, "gold": number % 4,
                "text": f"Once upon a {choices[0]} in the {choices[1]}, number {number}.\n\n {choices[2]} – é 日本",
            }
        )  # fmt: skip
    return found


def write_tasks(folder: Path, count: int = 12) -> Path:
    """Write all tasks and groups into a folder, with `count` documents each."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in (("test", rows(count)), ("train", rows(8, 100))):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    files = {split: str(folder / f"{split}.jsonl") for split in ("test", "train")}
    common = f"dataset_path: json\ndataset_kwargs: {{data_files: {json.dumps(files)}}}\ntest_split: test\n"
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{common}{text}metadata: {{version: 1.0}}\n", "utf-8")
    for name, text in GROUPS.items():
        (folder / f"{name}.yaml").write_text(f"{{group: {name}, {text[1:]}\n", "utf-8")
    (folder / "overlap.py").write_text(FUNCTIONS, "utf-8")
    return folder
