"""Entry of the commands `bench judge check` and `bench judge next` in the list of commands."""

from __future__ import annotations

from harness.cli.lazy_commands import CommandEntry, lazy_group, new_app
from harness.cli.main import RESULTS

JUDGE = CommandEntry(
    "harness.plugins.judge_check.command", "app", "Compare a judge with labels of people.", RESULTS
)  # fmt: skip

_CHECK = "Measure agreement and bias, and correct the mean."
_NEXT = "Draw the rollouts that people should label next."

app = new_app(
    cls=lazy_group(
        {
            "check": CommandEntry("harness.plugins.judge_check.check_command", "check", _CHECK),
            "next": CommandEntry("harness.plugins.judge_check.next_command", "next_labels", _NEXT),
        }
    ),
    no_args_is_help=True,
)


@app.callback()
def judge() -> None:
    """Compare the scores of a run with labels of people, and draw the rollouts to label next.

    A judge is a model, a program or a parser that scored the run.
    """
