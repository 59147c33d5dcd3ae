"""Lists of tasks that several models are evaluated on: what a task is, how it is read from a file, how an output is
scored, and the environment that they make up. Owns no model, no result object and no comparison of models."""

from __future__ import annotations

from harness.tasks.files import load_tasks
from harness.tasks.options import TaskOptions
from harness.tasks.tasks import UNSET, Task, Unset, read_task, read_tasks

__all__ = ["UNSET", "Task", "TaskOptions", "Unset", "load_tasks", "read_task", "read_tasks"]
