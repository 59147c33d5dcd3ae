"""The single-turn task of the measurements in lm-eval: `lm_eval_run.py URL FILE IN_FLIGHT`."""
# pyright: basic, reportMissingImports=false, reportCallIssue=false, reportTypedDictNotRequiredAccess=false

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.update(OPENAI_API_KEY="none", HF_HUB_OFFLINE="1", HF_HOME=str(Path("hf").absolute()))

import lm_eval

url, questions, in_flight = sys.argv[1:4]
task = {
    "task": "load",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": questions}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{input}}",
    "doc_to_target": "{{target}}",
    "generation_kwargs": {"until": ["\n\n"]},
    "metric_list": [{"metric": "exact_match"}],
}
done = lm_eval.simple_evaluate(
    model="local-chat-completions",
    model_args=f"model=load,base_url={url}/chat/completions,num_concurrent={in_flight},tokenized_requests=False",
    tasks=[task],
    apply_chat_template=True,
    log_samples=True,
)
assert done is not None
Path("lm-eval.json").write_text(json.dumps(done["samples"], default=str))
assert len(done["samples"]["load"]) == len(Path(questions).read_text().splitlines())
