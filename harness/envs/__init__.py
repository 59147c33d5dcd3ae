"""What an environment is made of: its dataset, its turns and its hooks. Owns the author's side of a rollout; knows no
model client, no disk and no schedule."""

from __future__ import annotations

from harness.envs.environment import Environment
from harness.envs.hooks import cleanup, stop, teardown
from harness.envs.multi_turn import MultiTurnEnv
from harness.envs.single_turn import SingleTurnEnv

__all__ = ["Environment", "MultiTurnEnv", "SingleTurnEnv", "cleanup", "stop", "teardown"]
