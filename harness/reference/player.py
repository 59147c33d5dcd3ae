"""What the server must be able to ask an environment, and how it finds the example that a request is about. Owns the
index of examples; the environment owns the answers."""

from __future__ import annotations

from typing import Protocol

from harness.core.keys import ExampleKeys, digest
from harness.core.records import Example, Row
from harness.core.types import Message, Messages, Prompt


class Player(Protocol):
    """An environment from the server's side."""

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """The ideal player's next message.

        Raises:
            NotImplementedError: the environment has no reference policy.
        """
        ...

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """The next message of a player that knows nothing."""
        ...

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """What an ideal judge says to `messages`, which show it a response to the example.

        Raises:
            NotImplementedError: the environment has no reference judge.
        """
        ...

    def find(self, example_key: str | None, messages: Prompt) -> Example | None:
        """The example with this key, else the one whose prompt begins `messages`; None if there is neither."""
        ...


class Playable(Protocol):
    """What of an environment a player needs."""

    @property
    def row_count(self) -> int:
        """Rows of its dataset."""
        ...

    def row(self, i: int, /) -> Row:
        """Row `i`, formatted for the model."""
        ...

    def reference_reply(self, example: Example, messages: Messages, /) -> Message | str:
        """As in `Player`."""
        ...

    def null_reply(self, example: Example, messages: Messages, /) -> Message | str:
        """As in `Player`."""
        ...

    def reference_verdict(self, example: Example, messages: Messages, /) -> str:
        """As in `Player`."""
        ...


class EnvironmentPlayer:
    """Plays an environment. Examples are known once they are learned one by one, or all at once from its dataset."""

    def __init__(self, environment: Playable) -> None:
        self._environment = environment
        self._by_key: dict[str, Example] = {}
        self._by_prompt: dict[str, str] = {}
        self._lengths: tuple[int, ...] = ()

    def learn(self, example: Example) -> None:
        """Know `example` by its key."""
        self._by_key[example.key] = example

    def forget(self, example_key: str) -> None:
        """Drop an example that will not be asked about again, so that memory stays flat in a long run."""
        self._by_key.pop(example_key, None)

    def learn_all(self) -> None:
        """Know every row by key, and by prompt for clients that send no key. Of equal prompts the first one counts."""
        keys = ExampleKeys()
        lengths: set[int] = set()
        for index in range(self._environment.row_count):
            example = keys.example(self._environment.row(index), index)
            self.learn(example)
            self._by_prompt.setdefault(digest(example.prompt), example.key)
            if not isinstance(example.prompt, str):
                lengths.add(len(example.prompt))
        self._lengths = tuple(sorted(lengths, reverse=True))

    def find(self, example_key: str | None, messages: Prompt) -> Example | None:
        """As in `Player`. Later turns of a conversation are found by the prompt that they begin with."""
        example = self._by_key.get(example_key) if example_key else None
        if example is not None or not self._by_prompt:
            return example
        starts = (
            [messages] if isinstance(messages, str) else [messages[:n] for n in self._lengths if n <= len(messages)]
        )
        for start in starts:
            key = self._by_prompt.get(digest(start))
            if key is not None:
                return self._by_key.get(key)
        return None

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """As in `Player`."""
        return self._environment.reference_reply(example, messages)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """As in `Player`."""
        return self._environment.null_reply(example, messages)

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """As in `Player`."""
        return self._environment.reference_verdict(example, messages)
