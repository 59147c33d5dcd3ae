"""Runs as data frames, for notebooks."""

from harness.report.frames.rollouts import messages_df, rollouts_df
from harness.report.frames.runs import runs_df

__all__ = ["messages_df", "rollouts_df", "runs_df"]
