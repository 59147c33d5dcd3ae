"""The constructor arguments of environments: names, types and validation."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, cast

from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, Messages, MessageType
from harness.envs.dataset import Dataset, message_fault
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric


class EnvOptions(TypedDict, total=False):
    """Constructor arguments of all environments."""

    dataset: Dataset | None
    """Rows to evaluate, if there is no `eval_dataset`."""
    eval_dataset: Dataset | None
    """Rows to evaluate."""
    system_prompt: str | None
    """System message for prompts that have none. Chat environments only."""
    few_shot: Messages | None
    """Messages between the system prompt and the question. Chat environments only."""
    parser: Parser | None
    """Extracts answers; also passed to reward functions by rubrics without their own parser."""
    rubric: Rubric | None
    """The rubric that scores rollouts."""
    sampling_args: JsonDict | None
    """Default sampling arguments; those of the run take precedence."""
    message_type: MessageType
    """`chat` (messages) or `completion` (text)."""
    tool_defs: list[JsonDict] | None
    """Tool definitions in the OpenAI wire format, sent with every request; a row's `info` may override them."""
    oai_tools: list[JsonDict] | None
    """Older name of `tool_defs`."""
    max_workers: int | None
    """Number of threads that the environment's blocking code needs concurrently, if more than the default."""
    env_id: str | None
    """The environment's id; set by `load_environment` if missing."""
    env_args: JsonDict | None
    """Arguments of `load_environment`, which sets them if missing."""


_TRAINING = {
    "interleaved_rollouts", "map_kwargs", "max_seq_len", "pass_threshold", "score_rollouts", "timeout_seconds",
}  # fmt: skip
"""Classic arguments for training, which have no effect here. They are rejected rather than silently ignored."""


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "system_prompt": (lambda value: isinstance(value, str), "a string"),
    "few_shot": (lambda value: isinstance(value, list), "a list of messages"),
    "parser": (lambda value: isinstance(value, Parser), "a Parser"),
    "rubric": (lambda value: isinstance(value, Rubric), "a Rubric"),
    "sampling_args": (_is_dict, "a dict"),
    "message_type": (lambda value: value in ("chat", "completion"), "'chat' or 'completion'"),
    "tool_defs": (lambda value: isinstance(value, list), "a list of tool definitions"),
    "max_workers": (lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0, "above 0"),
    "env_id": (lambda value: isinstance(value, str), "a string"),
    "env_args": (_is_dict, "a dict"),
}


def checked(owner: type, options: Mapping[str, Any]) -> EnvOptions:
    """Validate options; None values are omitted.

    Args:
        owner: The environment's class, for messages and for the arguments of its own constructors.
        options: The options passed to the base constructor.

    Raises:
        EnvironmentFault: an unknown name, a wrong type, or options that exclude each other.
    """
    known = set(EnvOptions.__annotations__)
    for name in options:
        if name in _TRAINING:
            raise EnvironmentFault(
                f"{owner.__name__}({name}=…): there is no training here, so nothing to set; remove it"
            )
        if name not in known:
            raise EnvironmentFault(unknown_name(f"{owner.__name__}({name}=…)", name, known | _named(owner)))
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "oai_tools" in given:
        given.setdefault("tool_defs", given.pop("oai_tools"))
    for name, value in given.items():
        words = option_fault(name, value)
        if words:
            raise EnvironmentFault(f"{owner.__name__}({name}=…) {words}")
    _check_together(owner.__name__, given)
    return cast(EnvOptions, given)


def option_fault(name: str, value: object) -> str:
    """Error of an option's value, as the rest of a sentence; "" if it is valid, or if the name is not an option."""
    test, wanted = _CHECKS.get(name, (None, ""))
    return "" if test is None or test(value) else f"must be {wanted}, not {value!r}"


def unknown_name(where: str, name: str, known: Iterable[str]) -> str:
    """Message for an unknown name, with the most similar known one."""
    near = difflib.get_close_matches(name, sorted(known), 1, 0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{where}: unknown name; {hint}Known are {', '.join(sorted(known))}"


def _check_together(owner: str, given: Mapping[str, Any]) -> None:
    if "dataset" not in given and "eval_dataset" not in given:
        raise EnvironmentFault(f"{owner} needs a dataset or an eval_dataset")
    if given.get("message_type") == "completion":
        for name in ("system_prompt", "few_shot", "tool_defs"):
            if given.get(name):
                raise EnvironmentFault(f"{owner}({name}=…) goes with messages, not with message_type='completion'")
    for number, message in enumerate(given.get("few_shot", ())):
        words = message_fault(message)
        if words:
            raise EnvironmentFault(f"{owner}(few_shot=…): message {number} {words}")


def _named(owner: type) -> set[str]:
    """Names of the arguments of a class's constructors."""
    names: set[str] = set()
    for base in owner.__mro__:
        if "__init__" in base.__dict__ and base is not object:
            parameters = list(inspect.signature(base.__dict__["__init__"]).parameters.values())[1:]
            names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names
