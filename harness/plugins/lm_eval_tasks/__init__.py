"""Tasks of lm-evaluation-harness as environments: `lm-eval/gsm8k_cot`. The library `lm_eval` builds the requests of a
task, filters the replies and computes the metrics; everything else is done by `bench`, as for any environment."""
