"""Environments: dataset, rollout loop and hooks, as used by authors."""

from __future__ import annotations

from harness.envs.environment import Environment
from harness.envs.hooks import cleanup, stop, teardown
from harness.envs.multi_turn import MultiTurnEnv
from harness.envs.single_turn import SingleTurnEnv

__all__ = ["Environment", "MultiTurnEnv", "SingleTurnEnv", "cleanup", "stop", "teardown"]
