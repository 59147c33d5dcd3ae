"""Alphabet sort: keep a list of names in alphabetical order while every turn adds more names to it.

Owns the conversation, the rewards and the reference policy. `names` makes the examples, `lists` reads and compares
lists.
"""

from __future__ import annotations

from alphabet_sort.lists import read_list, similarity_of
from alphabet_sort.names import SORT_BY, make_rows, right_lists
from harness import Example, JsonDict, Messages, MultiTurnEnv, Parser, Prompt, Rubric, State, stop
from harness.errors import ConfigError

FORMAT = "Reply with the whole list, one name a line, in <sorted> tags."


class AlphabetSortEnv(MultiTurnEnv):
    """A list that grows: turn k asks for the names of turns 1 to k in order."""

    @stop
    async def all_turns_taken(self, state: State) -> bool:
        """The model has answered the last turn."""
        return len(state["trajectory"]) >= len(state["info"]["turns"])

    async def env_response(self, messages: Messages, state: State, **kwargs: object) -> Messages:
        """The next names."""
        names = state["info"]["turns"][len(state["trajectory"])]
        content = f"Now add these names and keep the order:\n\n{chr(10).join(names)}\n\n{FORMAT}"
        return [{"role": "user", "content": content}]

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """The right list for the turn that is being asked for."""
        turn = sum(message["role"] == "assistant" for message in messages)
        return "\n".join(["<sorted>", *right_lists(example.info)[turn], "</sorted>"])


def similarity(completion: Prompt, info: JsonDict, parser: Parser) -> float:
    """How near the lists came to the right ones, from 0 to 1, as the mean over all turns; a turn never taken is 0."""
    return sum(graded(completion, info, parser)) / len(info["turns"])


def exact(completion: Prompt, info: JsonDict, parser: Parser) -> float:
    """1 if every turn's list was exactly right, else 0."""
    return float(all(grade == 1.0 for grade in graded(completion, info, parser)))


def graded(completion: Prompt, info: JsonDict, parser: Parser) -> list[float]:
    """The similarity of each turn's list to the right one."""
    replies = [parser.parse_answer([message]) or "" for message in parser.get_assistant_messages(completion)]
    right = right_lists(info)
    replies += [""] * (len(right) - len(replies))
    return [similarity_of(read_list(reply), wanted) for reply, wanted in zip(replies, right, strict=False)]


def load_environment(
    num_examples: int = 1000,
    seed: int = 0,
    min_turns: int = 1,
    max_turns: int = 3,
    max_names: int = 5,
    sort_by: str = "any",
) -> AlphabetSortEnv:
    """The environment; an example depends on its index and these arguments alone.

    Args:
        num_examples: How many examples there are.
        seed: Another seed gives other examples.
        min_turns: Fewest turns of an example.
        max_turns: Most turns of an example.
        max_names: Most names that a turn brings; the first brings at least 2, the others at least 1.
        sort_by: `first` or `last` name, or `any`: each example says which.

    Raises:
        ConfigError: an argument is out of range or of the wrong type.
    """
    check_count("num_examples", num_examples, 1)
    check_count("seed", seed, 0)
    check_count("min_turns", min_turns, 1)
    check_count("max_turns", max_turns, min_turns, 10)
    check_count("max_names", max_names, 2, 6)
    if sort_by not in SORT_BY:
        raise ConfigError(f"sort_by must be one of {', '.join(SORT_BY)}, not {sort_by!r}")
    return AlphabetSortEnv(
        eval_dataset=lambda: make_rows(num_examples, seed, (min_turns, max_turns), max_names, sort_by),
        rubric=Rubric(funcs=[similarity, exact], weights=[1.0, 0.0]),
    )


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse an argument that is no whole number in its range.

    Raises:
        ConfigError: names the argument, its range and what it was.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ConfigError(f"{name} must be a whole number {bounds}, not {value!r}")
