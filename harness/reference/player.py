"""Players connect an environment to the reference server: they find the dataset example that a request belongs to."""

from __future__ import annotations

from typing import Protocol

from harness.core.keys import ExampleKeys, digest
from harness.core.records import Example, Row
from harness.core.types import Message, Messages, Prompt


class Playable(Protocol):
    """The methods of an environment that `EnvironmentPlayer` needs."""

    @property
    def row_count(self) -> int:
        """Number of rows of the dataset."""
        ...

    def row(self, i: int, /) -> Row:
        """Return row `i`, formatted for the model."""
        ...

    def reference_reply(self, example: Example, messages: Messages, /) -> Message | str:
        """Return the next message of a perfect player.

        Raises:
            NotImplementedError: the environment has no reference policy.
        """
        ...

    def null_reply(self, example: Example, messages: Messages, /) -> Message | str:
        """Return the next message of a player without any knowledge."""
        ...

    def reference_verdict(self, example: Example, messages: Messages, /) -> str:
        """Return the reply of a perfect judge to `messages`, which contain a response to the example.

        Raises:
            NotImplementedError: the environment has no reference judge.
        """
        ...


class EnvironmentPlayer:
    """Finds the dataset example of a request, by key or by prompt, among the examples that were registered."""

    def __init__(self, environment: Playable) -> None:
        self.environment = environment
        self._by_key: dict[str, Example] = {}
        self._by_prompt: dict[str, str] = {}
        self._lengths: tuple[int, ...] = ()

    def learn(self, example: Example) -> None:
        """Register an example, so that its requests can be found by its key."""
        self._by_key[example.key] = example

    def forget(self, example_key: str) -> None:
        """Remove the example with this key, so that memory does not grow during a long run."""
        self._by_key.pop(example_key, None)

    def learn_all(self) -> None:
        """Register every row by key, and also by prompt for clients that send no key. Of equal prompts the first one is
        used."""
        keys = ExampleKeys()
        lengths: set[int] = set()
        for index in range(self.environment.row_count):
            example = keys.example(self.environment.row(index), index)
            self.learn(example)
            self._by_prompt.setdefault(digest(example.prompt), example.key)
            if not isinstance(example.prompt, str):
                lengths.add(len(example.prompt))
        self._lengths = tuple(sorted(lengths, reverse=True))

    def find(self, example_key: str | None, messages: Prompt) -> Example | None:
        """Find the example of a request, by key or else by the prompt. Later turns also start with the prompt."""
        example = self._by_key.get(example_key) if example_key else None
        if example is not None or not self._by_prompt:
            return example
        lengths = [len(messages)] if isinstance(messages, str) else self._lengths
        starts = (messages[:length] for length in lengths if length <= len(messages))
        key = next((key for start in starts if (key := self._by_prompt.get(digest(start))) is not None), "")
        return self._by_key.get(key)
