"""Runs as data frames, for notebooks: `runs_df`, `rollouts_df` and `messages_df`."""

from harness.report.frames import messages_df, rollouts_df, runs_df

__all__ = ["messages_df", "rollouts_df", "runs_df"]
