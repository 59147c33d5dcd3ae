"""Environments with one question and one answer."""

from __future__ import annotations

from typing import Any, Unpack

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import Messages, Prompt
from harness.envs.multi_turn import MultiTurnEnv
from harness.envs.options import EnvOptions


class SingleTurnEnv(MultiTurnEnv):
    """An environment that sends one prompt and scores the reply.

    Args:
        **options: See `EnvOptions`.

    Raises:
        EnvironmentFault: see `Environment`.
    """

    def __init__(self, **options: Unpack[EnvOptions]) -> None:
        if "max_turns" in options:
            raise EnvironmentFault(f"{type(self).__name__}(max_turns=…): use MultiTurnEnv for more than one turn")
        super().__init__(max_turns=1, **options)

    def set_max_turns(self, max_turns: int) -> None:
        """Reject more than one turn.

        Raises:
            EnvironmentFault: `max_turns` is not 1.
        """
        if max_turns != 1:
            raise EnvironmentFault(f"max_turns of a single-turn environment must be 1, not {max_turns!r}")
        super().set_max_turns(max_turns)

    def settable(self) -> set[str]:
        """Names that `set_kwargs` accepts, without the number of turns."""
        return super().settable() - {"max_turns"}

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Not used: the rollout ends with the model's first reply."""
        raise EnvironmentFault("a single-turn environment does not respond to the model")

    def _add_monitor(self) -> None:
        """Add no metric: the number of turns is always one."""
