"""Which generation a classic package gets: by what it requires, else by what it says, else the plainer one."""

from __future__ import annotations

from tables import for_each_row

from harness.plugins.classic.generation import generation_of, requires_verifiers


@for_each_row(
    ("requirement", "generation"),
    [
        ("verifiers==0.1.9.post3", "B"),
        ("verifiers==0.1.9.post2", "B"),
        ("verifiers>=0.1.8,<0.1.11", "B"),
        ("verifiers[all] (>=0.1.8,<=0.1.10)", "B"),
        ("verifiers~=0.1.11", "C"),
        ("verifiers>=0.1.11", "C"),
        ("verifiers>=0.1.12.dev1; python_version > '3.10'", "C"),
        ("verifiers>0.1.10", "C"),
        ("verifiers==0.1.13", "C"),
        ("verifiers==0.3.*", "C"),
        ("verifiers>=0.2,<0.4", "C"),
        ("verifiers!=0.1.11,!=0.1.12,!=0.1.14,<0.2", "B"),
    ],
)
def test_a_requirement_decides(requirement: str, generation: str) -> None:
    # The source says the contrary, and is not asked.
    source = "vf.UserMessage(content='x')" if generation == "B" else "state['oai_tools']"
    assert generation_of(["datasets", requirement], [source]) == generation


@for_each_row(
    ("source", "generation"),
    [
        ("def f(state): return state['timing']['generation_ms']", "B"),
        ("name = call['function']['name']", "B"),
        ("from verifiers.types import ChatMessage", "B"),
        ("from verifiers.types import AssistantMessage", "C"),
        ("vf.Tool(name='x', description='', parameters={})", "C"),
        ("calls = messages[-1].tool_calls", "C"),
        ("vf.ensure_keys(['KEY'])", "C"),
    ],
)
@for_each_row("requirements", [[], ["verifiers"], ["verifiers>=0.1.5"], ["verifiers<0.4"]])
def test_an_open_requirement_leaves_it_to_the_source(requirements: list[str], source: str, generation: str) -> None:
    assert generation_of(requirements, ["import verifiers as vf", source]) == generation


@for_each_row(
    ("requirements", "generation"), [([], "B"), (["verifiers"], "B"), (["verifiers>=0.1.3"], "B"), (["numpy>=2"], "B")]
)
def test_without_evidence_it_is_the_plainer_one(requirements: list[str], generation: str) -> None:
    assert generation_of(requirements, ["import verifiers as vf\nvf.Rubric()"]) == generation


@for_each_row(
    ("requirement", "is_it"),
    [
        ("verifiers", True),
        ("Verifiers[rl]>=0.1.5", True),
        ("verifiers ; extra == 'x'", True),
        ("verifiers-rl>=1", False),
        ("my-verifiers", False),
    ],
)
def test_only_the_package_itself_counts(requirement: str, is_it: bool) -> None:
    assert requires_verifiers([requirement]) is is_it
