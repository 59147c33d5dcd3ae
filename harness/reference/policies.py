"""The reference models: their names, parameters and answers."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, cast
from urllib.parse import parse_qsl

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.records import Example
from harness.core.types import Message, Messages
from harness.reference.player import EnvironmentPlayer
from harness.settings.wording import nearest

PREFIX = "reference/"

DEFAULT_ACCURACY = 0.7

PolicyName: TypeAlias = Literal["oracle", "noisy", "null", "echo", "judge"]

_PARAMETERS: dict[PolicyName, tuple[str, ...]] = {
    "oracle": (), "noisy": ("accuracy", "seed"), "null": (), "echo": (), "judge": (),
}  # fmt: skip

_METHODS: dict[PolicyName, tuple[str, ...]] = {
    "oracle": ("reference_reply",), "noisy": ("reference_reply", "null_reply"), "null": ("null_reply",), "echo": (),
    "judge": ("reference_verdict",),
}  # fmt: skip

NAMES: tuple[str, ...] = tuple(_PARAMETERS)
"""Names of all reference models, without the prefix."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The answering policy of a reference model."""

    name: PolicyName
    """`oracle`: the environment's perfect player. `null`: its player without knowledge. `noisy`: one of these two for a
    whole rollout. `echo`: the last user message. `judge`: the environment's verdict on a response."""
    accuracy: float = DEFAULT_ACCURACY
    """`noisy` only: share of rollouts that the perfect player answers."""
    seed: int = 0
    """`noisy` only: seed of the random selection of these rollouts."""

    @property
    def needs_player(self) -> bool:
        """Whether the replies come from methods of an environment, so that the server needs its player."""
        return self.name != "echo"

    @property
    def plays(self) -> tuple[str, ...]:
        """Names of the environment methods, such as `reference_reply`, whose answers the policy returns."""
        return _METHODS[self.name]

    def is_ideal(self, rollout_key: str) -> bool:
        """Return whether this rollout gets the replies of the perfect player.

        For `noisy`, this is the case if sha256 of seed and key, as a number in [0, 1), is below the accuracy, so a
        resumed run equals an uninterrupted one."""
        if self.name != "noisy":
            return self.name == "oracle"
        drawn = hashlib.sha256(f"{self.seed}:{rollout_key}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") / 2.0**64 < self.accuracy

    def reply(
        self, player: EnvironmentPlayer | None, example: Example | None, messages: Messages, rollout_key: str
    ) -> Message:
        """Return the next assistant message.

        Args:
            player: The player of the environment; may be None only for `echo`.
            example: The example that the request is about; may be None only for `echo`.
            messages: The conversation so far.
            rollout_key: Key for the draw of `noisy`.

        Raises:
            NotImplementedError: the environment has no reference policy or no reference judge.
            EnvironmentFault: the environment returned something that is neither a string nor a message.
        """
        if player is None or example is None or self.name == "echo":
            return said("echo", echo(messages))
        if self.name == "judge":
            return said("reference_verdict", player.environment.reference_verdict(example, messages))
        if self.is_ideal(rollout_key):
            return said("reference_reply", player.environment.reference_reply(example, messages))
        return said("null_reply", player.environment.null_reply(example, messages))


def said(method: str, answer: object) -> Message:
    """Convert the return value of an environment's method to a message.

    Args:
        method: Name of the method, for the error message.
        answer: A string, or a message with content or tool calls.

    Raises:
        EnvironmentFault: `answer` is neither.
    """
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    if isinstance(answer, dict):
        message = cast("Message", answer)
        fits = isinstance(message.get("content"), str | list | None) and isinstance(
            message.get("tool_calls"), list | None
        )
        if fits and ("content" in message or "tool_calls" in message):
            return message
        raise EnvironmentFault(
            f"{method} returned a dict that is not a message: it needs content (a string) or tool_calls"
        )
    if inspect.iscoroutine(answer):
        answer.close()
        raise EnvironmentFault(
            f"{method} returned a coroutine, not a string or a message: make it a plain def, not async"
        )
    hint = " (missing return statement?)" if answer is None else ""
    raise EnvironmentFault(f"{method} returned {type(answer).__name__}, not a string or a message{hint}")


def echo(messages: Messages) -> str:
    """Return the text of the last user message, or ""."""
    return next((message_text(message) for message in reversed(messages) if message.get("role") == "user"), "")


def message_text(message: Message) -> str:
    """Return the text of a message, without parts that are not text."""
    content: object = message.get("content")
    if isinstance(content, list):
        parts = [cast("dict[str, object]", part) for part in cast("list[object]", content) if isinstance(part, dict)]
        return "".join(text for part in parts if isinstance(text := part.get("text"), str))
    return content if isinstance(content, str) else ""


def is_reference(model: str) -> bool:
    """Return whether `model` names a reference model."""
    return model.startswith(PREFIX)


UNKNOWN_PROMPT = "no environment of this server has this prompt"
"""Error message for a prompt that no environment of the server has. It does not mean that the server is unhealthy."""


@lru_cache(maxsize=64)
def parse_model(model: str) -> Policy:
    """Parse `reference/NAME?parameter=value&…`.

    Raises:
        ConfigError: an unknown policy or parameter (suggests the nearest), or a value out of range.
    """
    name, _, query = model.removeprefix(PREFIX).partition("?")
    if not model.startswith(PREFIX) or name not in NAMES:
        raise ConfigError(f"unknown reference model {model!r}{_nearest(name, list(NAMES), PREFIX)}")
    policy = cast("PolicyName", name)
    allowed = _PARAMETERS[policy]
    given: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in allowed:
            takes = f"it takes {' and '.join(allowed)}" if allowed else "it takes no parameters"
            raise ConfigError(f"{PREFIX}{name} has no parameter {key!r}{_nearest(key, list(allowed))}; {takes}")
        if key in given:
            raise ConfigError(f"{model!r} sets the parameter {key} twice")
        given[key] = value
    if query and not given:
        raise ConfigError(f"{model!r}: write parameters as in ?accuracy=0.7&seed=1")
    accuracy, seed = given.get("accuracy", str(DEFAULT_ACCURACY)), given.get("seed", "0")
    try:
        value = float(accuracy)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{model!r}: accuracy must be a number from 0 to 1, not {accuracy!r}")
    try:
        return Policy(policy, value, int(seed))
    except ValueError:
        raise ConfigError(f"{model!r}: seed must be a whole number, not {seed!r}") from None


def _nearest(word: str, known: list[str], prefix: str = "") -> str:
    if near := nearest(word, known):
        return f"; did you mean {prefix}{near}?"
    return f"; known are {', '.join(prefix + name for name in known)}" if known else ""
