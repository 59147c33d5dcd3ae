"""The constructor arguments of environments: names, types and validation."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, Messages, MessageType
from harness.envs.dataset import Dataset, messages_fault
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric
from harness.settings.wording import nearest


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
    """Form of prompts and replies: `chat` (messages) or `completion` (text)."""
    tool_defs: list[JsonDict] | None
    """Tool definitions in the OpenAI wire format, sent with every request; a row's `info` may override them."""
    oai_tools: list[JsonDict] | None
    """Older name of `tool_defs`."""
    cluster_key: str | None
    """Key of the rows' `info`, or `task`, whose value is the same in rows that resemble each other; see
    `Environment.cluster_key`."""
    max_workers: int | None
    """Number of threads that the environment's blocking code needs concurrently, if more than the default."""
    env_id: str | None
    """The environment's id; set by `load_environment` if missing."""
    env_args: JsonDict | None
    """Arguments of `load_environment`, which sets them if missing."""


_TRAINING = {
    "interleaved_rollouts", "map_kwargs", "max_seq_len", "pass_threshold", "score_rollouts", "timeout_seconds",
}  # fmt: skip
"""Arguments of the classic API for training, which bench does not support; rejected rather than silently ignored."""


_TYPES: dict[str, tuple[type, str]] = {
    "system_prompt": (str, "a string"),
    "few_shot": (list, "a list of messages"),
    "parser": (Parser, "a Parser"),
    "rubric": (Rubric, "a Rubric"),
    "sampling_args": (dict, "a dict"),
    "message_type": (str, "'chat' or 'completion'"),
    "tool_defs": (list, "a list of tool definitions"),
    "cluster_key": (str, "a string"),
    "max_workers": (int, "above 0"),
    "env_id": (str, "a string"),
    "env_args": (dict, "a dict"),
}
"""Types of an environment's options, with a description of each for error messages."""


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
                f"{owner.__name__}({name}=…): this option is for training, which is not supported; remove it"
            )
        if name not in known:
            # Names of the arguments of a class's constructors.
            names: set[str] = set()
            for base in owner.__mro__:
                if "__init__" in base.__dict__ and base is not object:
                    parameters = list(inspect.signature(base.__dict__["__init__"]).parameters.values())[1:]
                    names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
            raise EnvironmentFault(unknown_name(f"{owner.__name__}({name}=…)", name, known | names))
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
    """Return why an option's value is invalid, such as `must be a string, not 3`; "" if it is valid or not checked."""
    kind, description = _TYPES.get(name, (object, ""))
    is_valid = isinstance(value, kind)
    if name == "message_type":
        is_valid = value in ("chat", "completion")
    elif name == "max_workers":
        is_valid = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return "" if is_valid else f"must be {description}, not {value!r}"


def unknown_name(where: str, name: str, known: Iterable[str]) -> str:
    """Error message for an unknown name, with the most similar known name."""
    near = nearest(name, known := sorted(known))
    return f"{where}: unknown name; {f'did you mean {near!r}? ' if near else ''}Known names are {', '.join(known)}"


def _check_together(owner: str, given: Mapping[str, Any]) -> None:
    if "dataset" not in given and "eval_dataset" not in given:
        raise EnvironmentFault(f"{owner} needs a dataset or an eval_dataset")
    if given.get("message_type") == "completion":
        for name in ("system_prompt", "few_shot", "tool_defs"):
            if given.get(name):
                raise EnvironmentFault(f"{owner}({name}=…) requires message_type='chat'")
    if words := messages_fault(given.get("few_shot", ())):
        raise EnvironmentFault(f"{owner}(few_shot=…): {words}")
