"""What turns a finished rollout into numbers: weighted reward functions and unweighted metrics. Owns no model call."""

from __future__ import annotations

from harness.rubrics.group import RubricGroup
from harness.rubrics.rubric import Rubric

__all__ = ["Rubric", "RubricGroup"]
