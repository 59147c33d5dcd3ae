# Make the files in `lm_eval/` with lm-eval 0.4.13, which needs an environment of its own: run it in an empty folder, with
# `bench serve --port 8461` in another terminal. Of `results_*.json`, `pretty_env_info` was removed.
set -e
cat > data.jsonl <<'END'
{"question": "Capital of Peru?", "answer": "Lima", "choices": ["Lima", "Oslo", "Rome"], "label": 0}
{"question": "Capital of Kenya?", "answer": "Nairobi", "choices": ["Oslo", "Nairobi", "Rome"], "label": 1}
{"question": "Say Oslo", "answer": "Oslo", "choices": ["Oslo", "Nairobi", "Rome"], "label": 0}
END
cat > chosen.yaml <<'END'
task: chosen
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "Q: {{question}}\nA:"
doc_to_choice: choices
doc_to_target: label
metric_list: [{metric: acc}, {metric: acc_norm}]
metadata: {version: 1.0}
END
cat > spoken.yaml <<'END'
task: spoken
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n\n"], max_gen_toks: 32}
repeats: 2
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: "#### (\\S+)"}, {function: take_first}]
  - name: flexible
    filter: [{function: regex, regex_pattern: "(\\w+)\\W*$"}, {function: take_first}]
metric_list: [{metric: exact_match}]
metadata: {version: 2.0}
END
cat > fluent.yaml <<'END'
task: fluent
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: word_perplexity}]
metadata: {version: 1.0}
END
cat > ending.yaml <<'END'
task: ending
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{question}}"
doc_to_target: " {{answer}}"
metric_list: [{metric: perplexity}, {metric: acc}]
metadata: {version: 1.0}
END
export HF_HUB_OFFLINE=1 HF_HOME="$PWD/hf" OPENAI_API_KEY=none
lm-eval run --model dummy --tasks chosen,fluent,ending --include_path . --output_path dummy --log_samples
lm-eval run --model local-chat-completions --tasks spoken --include_path . --output_path chat --log_samples \
    --apply_chat_template --system_instruction "Be brief." \
    --model_args model=reference/echo,base_url=http://localhost:8461/v1/chat/completions,tokenized_requests=False
