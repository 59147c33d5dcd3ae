"""Scoring of finished rollouts: weighted reward functions and unweighted metrics."""

from __future__ import annotations

from harness.rubrics.group import RubricGroup
from harness.rubrics.rubric import Rubric

__all__ = ["Rubric", "RubricGroup"]
