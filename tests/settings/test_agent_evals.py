"""`[[eval]]` tables of a suite that evaluate an agent, next to those of environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError, EnvironmentNotFound
from harness.settings.built_in import AGENT_EVAL, BUILT_INS
from harness.settings.environment_lookup import require_environment
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]

MIXED = """
model = "m"
[[eval]]
id = "toy-env"
[[eval]]
agent = "my_agent:Loop"
dataset = "data/rows.jsonl"
eval_fns = ["rewards:exact", "rewards:close"]
max_turns = 4
rollouts_per_example = 2
[[eval]]
mcp = "./tools"
dataset = "rows.csv"
eval_fns = "rewards:exact"
offset = 3
num_examples = 7
model = "other"
"""


def test_one_file_mixes_environments_and_agents(write: Write) -> None:
    write("suite.toml", MIXED)
    toy, agent, tools = resolve("suite.toml", {}).runs
    assert (toy.env_id, toy.settings.env.num_examples, toy.settings.env.rollouts_per_example) == ("toy-env", 5, 3)
    assert (agent.env_id, agent.settings.env.name, agent.settings.env.env_id) == (
        "Loop-rows",
        "Loop-rows",
        "agent-eval",
    )
    assert agent.settings.env.env_args == {
        "agent": "my_agent:Loop",
        "dataset": "data/rows.jsonl",
        "eval_fns": ["rewards:exact", "rewards:close"],
        "max_turns": 4,
    }
    assert (agent.settings.env.num_examples, agent.settings.env.rollouts_per_example) == (-1, 2)
    assert tools.settings.env.env_args == {
        "mcp": "./tools", "dataset": "rows.csv", "eval_fns": ["rewards:exact"], "offset": 3,
    }  # fmt: skip
    assert (tools.env_id, tools.settings.env.num_examples, tools.settings.model.model) == ("tools-rows", 7, "other")
    assert agent.origins["env.env_args.max_turns"].source == "suite.toml: eval[1].max_turns"


def test_the_file_that_repeats_such_a_run_says_the_same(write: Write) -> None:
    write("suite.toml", MIXED)
    for run in resolve("suite.toml", {}).runs[1:]:
        write("again.toml", run.to_toml())
        (again,) = resolve("again.toml", {}).runs
        assert (again.settings, again.env_id) == (run.settings, run.env_id)


def test_a_sweep_may_sweep_an_agents_arguments(write: Write) -> None:
    write(
        "suite.toml",
        """
        [[ablation]]
        agent = "a:B"
        dataset = "rows.jsonl"
        eval_fns = ["r:f"]
        [ablation.sweep]
        "env_args.max_turns" = [2, 8]
        """,
    )
    runs = resolve("suite.toml", {}).runs
    assert [run.settings.env.env_args["max_turns"] for run in runs] == [2, 8]
    assert [run.settings.env.name for run in runs] == ["B-rows[max_turns=2]", "B-rows[max_turns=8]"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('agent = "a:B"\ndataset = "d"', 'eval[0].eval_fns: must be a list of eval functions, each "module:function"'),
        ('agent = "a:B"\ndataset = "d"\neval_fns = []', "eval[0].eval_fns: must be a list of eval functions"),
        ('agent = "a:B"\neval_fns = ["r:f"]', "eval[0].dataset: this key is missing"),
        ('dataset = "d"\neval_fns = ["r:f"]', 'eval[0]: no agent to evaluate; add agent = "module:attribute" or mcp'),
        ('agent = "a:B"\nmcp = "m"\ndataset = "d"\neval_fns = ["r:f"]', "eval[0].mcp: agent and mcp are mutually"),
        ('agent = 3\ndataset = "d"\neval_fns = ["r:f"]', "eval[0].agent = 3: must be a string"),
        (
            'agent = "a:B"\ndataset = "d"\neval_fns = "r:f"\nmax_turns = 0',
            "max_turns = 0: must be an integer, 1 or more",
        ),
        ('agent = "a:B"\ndataset = "d"\neval_fns = "r:f"\noffset = true', "offset = true: must be an integer, 0"),
        (
            'id = "toy-env"\nagent = "a:B"\ndataset = "d"\neval_fns = "r:f"',
            "eval[0].id: cannot be combined with suite.toml: eval[0].agent",
        ),
        ('agent = "a:B"\ndataset = "d"\neval_fn = "r:f"', 'did you mean "eval_fns"'),
        (
            'agent = "a:B"\ndataset = "d"\neval_fns = "r:f"\nmax_turns = 3\nargs = {max_turns = 2}',
            "eval[0].args.max_turns: means the same as suite.toml: eval[0].max_turns; keep only one of them",
        ),
        (
            '[eval.env]\nagent = "a:B"',
            "eval[0].env.agent: this key belongs in the [[eval]] table of an agent evaluation, or in env_args",
        ),
    ],
)
def test_what_is_wrong_names_file_and_key(table: str, words: str, write: Write) -> None:
    write("suite.toml", f"[[eval]]\n{table}\n")
    with pytest.raises(ConfigError) as caught:
        resolve("suite.toml", {})
    assert str(caught.value).startswith("suite.toml: eval[0]")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"agent": "pkg.my_agent:MyAgentLoop", "dataset": "x/data.jsonl"}, "MyAgentLoop-data"),
        ({"mcp": "tools/../mcp/", "dataset": "Grade School.parquet"}, "mcp-Grade_School"),
        ({"agent": "a:" + "x" * 200, "dataset": "d.csv"}, "x" * 80),
        ({}, "work-rows"),
    ],
)
def test_it_is_called_after_its_agent_and_its_rows(arguments: dict[str, object], name: str, here: Path) -> None:
    assert BUILT_INS[AGENT_EVAL].name_of(arguments) == name


def test_defaults_and_sweeps_say_where_an_agents_keys_belong(write: Write) -> None:
    write("suite.toml", '[env]\nmax_turns = 3\n[[eval]]\nenv_id = "toy-env"\n')
    with pytest.raises(ConfigError, match=r"suite\.toml: env\.max_turns: this key belongs in the \[\[eval\]\]"):
        resolve("suite.toml", {})
    table = 'agent = "a:B"\ndataset = "d"\neval_fns = "r:f"'
    write("suite.toml", f"[[ablation]]\n{table}\n[ablation.sweep]\nmax_turns = [1, 2]\n")
    with pytest.raises(ConfigError, match=r'unknown key; did you mean "env_args.max_turns"'):
        resolve("suite.toml", {})


def test_a_set_may_name_one_of_several_agents(write: Write) -> None:
    table = 'dataset = "rows.jsonl"\neval_fns = "r:f"'
    write("suite.toml", f'[[eval]]\nagent = "a:B"\n{table}\n[[eval]]\nagent = "a:C"\n{table}\n')

    def sizes(*texts: str) -> list[int]:
        found = resolve("suite.toml", {}, texts)
        return [run.settings.env.num_examples for run in found.runs]

    assert sizes("C-rows:env.num_examples=2") == [-1, 2]
    assert sizes("agent-eval:env.num_examples=2") == [2, 2]
    assert sizes("agent-eval:env.num_examples=2", "B-rows:env.num_examples=3") == [3, 2]
    with pytest.raises(ConfigError, match="no run has the environment or name 'C-row'; did you mean \"C-rows\""):
        sizes("C-row:env.num_examples=2")


def test_without_a_dataset_it_is_refused(write: Write) -> None:
    with pytest.raises(
        ConfigError, match=r"^bench run: agent-eval needs a dataset file; .* with resume=True to resume"
    ):
        resolve("agent-eval", {"env_args": {"agent": "a:B"}})


@for_each_row("name", ["agent-eval", "agent_eval", "Agent.Eval"])
def test_it_is_no_package(name: str) -> None:
    """A package of that name is a stranger's: nobody may be sent to install it."""
    with pytest.raises(EnvironmentNotFound) as caught:
        require_environment(name, "bench env info", Path.cwd())
    assert str(caught.value).startswith("bench env info: agent-eval is built in") and "install" not in str(caught.value)
