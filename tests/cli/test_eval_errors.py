"""Every way in which the words of `bench eval` and `bench test` can be wrong: exit code 2, one message, no traceback,
nothing sent and nothing left behind; and what the help says."""

from __future__ import annotations

import shlex

import pytest
from agent_evals import Evals

from harness.cli.options import command_text

USUAL = "-m my_agent:MyAgentLoop -d data.jsonl --eval-fn rewards:exact_match --model x --base-url URL"
ALIKE = "-d data.jsonl --eval-fn rewards:exact_match --model x --base-url URL"


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("command", "words"),
    [
        # The documented texts
        (f"-m my_agent:MyAgentLoop --mcp mcp {ALIKE}", "error: --module and --mcp are mutually exclusive.\n"),
        (ALIKE, "error: Either --module (-m) or --mcp is required.\n"),
        (f"{USUAL} --n 0", "error: --n must be >= 1.\n"),
        (f"{USUAL} --batch-size 0", "error: --batch-size must be >= 1.\n"),
        (f"{USUAL} --batch_size -1", "error: --batch-size must be >= 1.\n"),
        (f"{USUAL} --max-turns 0", "error: --max-turns must be >= 1.\n"),
        (f"{USUAL} --offset -1", "error: --offset must be >= 0.\n"),
        (f"{USUAL} --limit 0", "error: --limit must be >= 1.\n"),
        (f"{USUAL} --max-tokens 0", "error: --max-tokens must be >= 1.\n"),
        (f"{USUAL} --baseline-base-url URL", "error: --baseline-base-url requires --baseline-model.\n"),
        (f"{USUAL} --baseline-api-key k", "error: --baseline-api-key requires --baseline-model.\n"),
        (f"{USUAL} --baseline-api-key-var K", "error: --baseline-api-key-var requires --baseline-model.\n"),
        (
            f"{USUAL} --api-key sk-1 --baseline-model m --baseline-api-key-var BENCH_API_KEY",
            "error: --baseline-api-key-var: BENCH_API_KEY is already used for the other model's key; pass "
            "--baseline-api-key, or use a variable of another name.\n",
        ),
        (
            f"{USUAL} --api-key-var BENCH_BASELINE_API_KEY --baseline-model m --baseline-api-key sk-2",
            "error: --api-key-var: BENCH_BASELINE_API_KEY is already used for the other model's key; pass "
            "--api-key, or use a variable of another name.\n",
        ),
        (f"{USUAL} --fresh --retry-failed", "error: --fresh and --retry-failed are mutually exclusive.\n"),
        (f"{USUAL} --fresh --resume", "error: --fresh and --resume are mutually exclusive.\n"),
        (USUAL.replace("--model x", "--model ''"), "error: Model cannot be empty. Pass a value with --model.\n"),
        # Options
        (USUAL.replace("--eval-fn rewards:exact_match", ""), "Missing option '--eval-fn'"),
        (USUAL.replace("-d data.jsonl", ""), "Missing option '-d'"),
        (USUAL.replace("--model x", ""), "Missing option '--model'"),
        (f"{USUAL} --num 3", "No such option"),
        (f"{USUAL} --batch 3", "--batch-size"),
        (f"{USUAL} --n three", "--n"),
        (f"{USUAL} --temperature hot", "--temperature"),
        (f"{USUAL} --api-key ''", "--api-key is empty"),
        (f"{USUAL} --api-key k --api-key-var K", "are mutually exclusive"),
        (f"{USUAL} --api-key-var NO_SUCH_KEY_HERE --base-url https://example.com/v1", "NO_SUCH_KEY_HERE"),
        (f"{USUAL} --dry-run --resume", "--dry-run"),
        (f"{USUAL} --resume --no-save", "--no-save"),
        (f"{USUAL} -S {{", "-S"),
        (f"{USUAL} -S stream=true", "stream"),
        (f"{USUAL} --set env.num_exmaples=5", '"num_examples"'),
        (f"{USUAL} --set model.api_base_url=URL", "use --base-url"),
        (f"{USUAL} --set env.env_args.eval_fns=[]", "--set cannot change env.env_args.eval_fns here; use --eval-fn\n"),
        (f"{USUAL} --set env_args={{}}", "use options for agent, rows and functions\n"),
        (f"{USUAL} --set env.name=x", "sets the names of its runs itself"),
        (f"{USUAL} --n 99999999999999999999", "the maximum is 10000000"),
        (f"{USUAL} --temperature nan", "error: --temperature must be a number, not nan.\n"),
        (f"{USUAL} -S n=3", "for more rollouts, raise --n\n"),
        (f"{USUAL} --debug-dir rewards.py", "error: --debug-dir rewards.py is not a folder"),
        (f"{USUAL} --debug-dir ''", "--debug-dir is empty"),
        (f"{USUAL} -o ''", "--output is empty"),
        (f"{USUAL} -o data.jsonl", "error: --output data.jsonl is read by this evaluation"),
        (f"{USUAL} -o ./rewards.py", "is read by this evaluation"),
        (f"{USUAL} -o mcp --dry-run", "is a folder"),
        (f"{USUAL} --set baseline:model.rpm=5", "there is no run named 'baseline'"),
        (f"{USUAL} --set primery:model.rpm=5 --baseline-model x --baseline-base-url URL", 'did you mean "primary"?'),
        (f"{USUAL} --pass-threshold nan", "--pass-threshold"),
        (f"{USUAL} -H --no-save", "--no-save"),
        (f"{USUAL} -o mcp", "is a folder"),
        (f"{USUAL} -o rewards.py/x.json", "rewards.py"),
        # The agent, its rows, its functions
        (f"-m my_agent {ALIKE}", "module.path:attribute_name"),
        (f"-m my_agnet:MyAgentLoop {ALIKE}", "Cannot import module 'my_agnet'"),
        (f"-m my_agent:MyAgentLop {ALIKE}", "Did you mean 'MyAgentLoop'?"),
        (f"--mcp nowhere {ALIKE}", "MCP directory does not exist"),
        (f"--mcp . {ALIKE}", "No main.py found in MCP directory"),
        (USUAL.replace("data.jsonl", "nothing.jsonl"), "Dataset file not found: nothing.jsonl"),
        (USUAL.replace("data.jsonl", "rewards.py"), "Unsupported file format: .py"),
        (USUAL.replace("data.jsonl", "short.jsonl"), "Row 1: Missing required columns: ['ground_truth']"),
        (f"{USUAL} --offset 3", "No rows to evaluate"),
        (USUAL.replace("rewards:exact_match", "rewards.exact_match"), "Expected format: 'module:function'"),
        (USUAL.replace("rewards:exact_match", "rewards:exact_mtch"), "Did you mean 'exact_match'?"),
        (f"{USUAL} --eval-fn rewards:exact_match", "Duplicate eval function path: 'rewards:exact_match'"),
        # The model
        (USUAL.replace(" --base-url URL", ""), "Missing API key for provider 'openai'. Set OPENAI_API_KEY"),
        (USUAL.replace("x --base-url URL", "anthropic/claude-sonnet-4-5"), "Set ANTHROPIC_API_KEY or LITELLM_API_KEY"),
        (USUAL.replace("x --base-url URL", "foo/bar"), "Received model='foo/bar'"),
        (USUAL.replace("URL", "localhost:8000"), "--base-url"),
        (f"{USUAL} --baseline-model openai/gpt-5-mini", "or pass --baseline-api-key"),
        (f"{USUAL} --baseline-model y", "to send them to openai, use --baseline-model openai/y"),
        (USUAL.replace("x --base-url URL", "reference/orcle"), "reference/orcle"),
    ],
)  # fmt: skip
def test_wrong_words_of_an_evaluation(evals: Evals, command: str, words: str) -> None:
    refused(evals, "eval", command, words)


REHEARSED = "-m my_agent:MyAgentLoop -d data.jsonl --model x --base-url URL"


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("-d data.jsonl --base-url URL", "error: Either --module (-m) or --mcp is required.\n"),
        (f"{REHEARSED} --row 1", "error: --row requires --interactive (-i).\n"),
        (f"{REHEARSED} -i --row -1", "error: --row must be >= 0.\n"),
        (f"{REHEARSED} -i --row 3", "error: --row 3: must be a row from 0 to 2\n"),
        (f"{REHEARSED} -i -o results.json", "--output and --interactive are mutually exclusive"),
        (f"{REHEARSED} -o my_agent.py", "is read by this evaluation"),
        (f"{REHEARSED} --max-turns 0", "error: --max-turns must be >= 1.\n"),
        (f"{REHEARSED} --n 3", "No such option"),
        (f"{REHEARSED} --eval-fn rewards:exact_match", "No such option"),
        (f"{REHEARSED} --offset 3", "No rows to evaluate"),
        ("-m my_agent:MyAgentLoop -d data.jsonl", "Missing API key for provider 'openai'"),
        (REHEARSED.replace("MyAgentLoop", "MyAgentLop"), "Did you mean 'MyAgentLoop'?"),
    ],
)
def test_wrong_words_of_a_rehearsal(evals: Evals, command: str, words: str) -> None:
    refused(evals, "test", command, words)


def refused(evals: Evals, name: str, command: str, words: str) -> None:
    (evals.cwd / "short.jsonl").write_text(
        '{"system_prompt": "s", "user_prompt": "2 + 2", "ground_truth": "4"}\n'
        '{"system_prompt": "s", "user_prompt": "u"}\n'
    )
    done = evals.bench(name, *shlex.split(command.replace("URL", evals.model.url)))
    said = done.err.replace("printed by the agent's module\n", "")
    assert done.code == 2, done.err
    assert words in said
    assert said.endswith(words) or not words.endswith("\n")
    assert done.out == "" and "Traceback" not in done.err
    assert evals.model.requests == []
    assert not (evals.cwd / "outputs").exists() and not (evals.cwd / "results.json").exists()


@pytest.mark.plugins
def test_local_faults_are_found_in_the_order_of_the_documents(evals: Evals) -> None:
    usual = ["eval", "-m", "nope:x", "-d", "nope.jsonl", "--eval-fn", "nope:f", "--model", "foo/bar"]
    assert "'nope'" in evals.bench(*usual).err and "nope.jsonl" not in evals.bench(*usual).err
    usual[2] = "my_agent:MyAgentLoop"
    assert "nope.jsonl" in evals.bench(*usual).err
    usual[4] = "data.jsonl"
    assert "Cannot import module 'nope'" in evals.bench(*usual).err
    usual[6] = "rewards:exact_match"
    assert "Received model='foo/bar'" in evals.bench(*usual).err


def test_an_agent_that_breaks_on_import_is_the_user_s_and_told_as_such(evals: Evals) -> None:
    (evals.cwd / "my_agent.py").write_text("x = 1\ndef broken(:\n")
    done = evals.eval()
    assert (done.code, done.out) == (2, "")
    assert "Cannot import module 'my_agent': SyntaxError" in done.err and "my_agent.py" in done.err
    assert "Traceback" not in done.err and "agent-eval" not in done.err


def test_keys_are_masked_in_a_command_line() -> None:
    words = ["--api-key", "sk-1", "--baseline-api-key=sk-2", "--api-key-var", "NAME", "--api-key=sk-3", "-o", "x"]
    assert shlex.split(command_text(words)) == [
        "bench", "--api-key", "***", "--baseline-api-key=***", "--api-key-var", "NAME", "--api-key=***", "-o", "x",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["eval", "test"])
def test_the_help_fits_a_terminal_and_is_in_groups(evals: Evals, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = evals.bench(command, "--help")
    assert done.code == 0
    assert max(map(len, done.lines)) <= 80
    heads = [line for line in done.lines if line.endswith(":") and not line.startswith(" ")]
    baseline, step, results = "Baseline: a second model on the same rows:", "Stepping:", "Run folder and resuming:"
    first = ["Required:", "Agent (one of them):", "Model:"]
    rest = {
        "eval": [baseline, "Execution:", "Output:", results, "Other:"],
        "test": ["Execution:", step, "Output:", "Other:"],
    }
    assert heads == [*first, *rest[command]]


DOCUMENTED = {
    "eval": """-m --module --mcp -d --dataset --eval-fn --model --base-url --api-key --baseline-model
        --baseline-base-url --baseline-api-key --n --pass-threshold --max-turns --temperature --max-tokens --batch-size
        --batch_size --limit --offset -o --output -q --quiet --debug""",
    "test": """-m --module --agent --mcp -d --model --base-url --api-key --max-turns --temperature --max-tokens --limit
        --offset -i --interactive --row -o --output -q --quiet --debug""",
}


@pytest.mark.parametrize("command", DOCUMENTED)
def test_every_documented_option_is_one(evals: Evals, command: str) -> None:
    words = set(evals.bench(command, "--help").out.replace(",", " ").split())
    assert [option for option in DOCUMENTED[command].split() if option not in words] == []
