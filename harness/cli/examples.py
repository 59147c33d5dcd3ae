"""For the help of each command: example command lines, and the documentation page about the command."""

from __future__ import annotations

from collections.abc import Mapping

_RUN = "docs/guides/running.md"

EXAMPLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "bench": ("docs/README.md", ("bench run gsm8k,wordle -n 10 -r 5", "bench run --help")),
    "bench run": (_RUN, ("bench run gsm8k,wordle -n 10 -r 5", "bench run configs/eval/suite.toml --dry-run")),
    "bench eval": (
        "docs/guides/agents.md",
        (
            "bench eval -m agent:Loop -d rows.jsonl --eval-fn rewards:score --model M",
            "bench eval --mcp tools -d rows.jsonl --eval-fn rewards:score --model M",
        ),
    ),
    "bench multi": (
        "docs/guides/multi.md",
        ("bench multi tasks.json models.toml", "bench multi tasks.json -m gpt-4.1-mini -m gpt-4.1"),
    ),
    "bench multi runs": ("docs/guides/multi.md", ("bench multi runs", "bench multi runs --json")),
    "bench multi show": ("docs/guides/multi.md", ("bench multi show latest", "bench multi show latest --json")),
    "bench multi replay": (
        "docs/guides/multi.md",
        ("bench multi replay latest", "bench multi replay latest --dry-run"),
    ),
    "bench test": (
        "docs/guides/agents.md",
        (
            "bench test -m agent:Loop -d rows.jsonl --model gpt-4.1-mini --limit 3",
            "bench test -m agent:Loop -d rows.jsonl --model gpt-4.1-mini -i",
        ),
    ),
    "bench runs": ("docs/guides/runs.md", ("bench runs", "bench runs show latest")),
    "bench runs list": ("docs/guides/runs.md", ("bench runs list --env gsm8k -n 5", "bench runs list --state done -q")),
    "bench runs show": (
        "docs/guides/failures.md",
        ("bench runs show latest", "bench runs show latest --where 'reward<1 stop:length'"),
    ),
    "bench runs rm": ("docs/guides/runs.md", ("bench runs rm latest", "bench runs rm 20261124T120000Z-ab12 -y")),
    "bench view": ("docs/guides/view.md", ("bench view", "bench view latest --port 8765 --no-open")),
    "bench resume": ("docs/guides/runs.md", ("bench resume latest", "bench resume latest --retry-failed")),
    "bench replay": ("docs/guides/replay.md", ("bench replay latest", "bench replay latest -m gpt-4.1")),
    "bench rescore": ("docs/guides/replay.md", ("bench rescore latest", "bench rescore latest --only unscored")),
    "bench export": (
        "docs/guides/export.md",
        ("bench export latest --format csv --output rows.csv", "bench export latest --format parquet"),
    ),
    "bench import": (
        "docs/guides/import.md",
        ("bench import logs/run.eval", "bench import scores.jsonl --map reward=score,example=id"),
    ),
    "bench compare": (
        "docs/guides/comparing.md",
        ("bench compare RUN_A RUN_B --flips 5", "bench compare --all --env gsm8k"),
    ),
    "bench estimate": ("docs/guides/ranking.md", ("bench estimate latest", "bench estimate RUN CONTROL_A CONTROL_B")),
    "bench gate": (
        "docs/guides/comparing.md",
        (
            "bench gate latest --baseline RUN_A --margin 0.02",
            "bench gate --against RUN_A --sequential -m MODEL --margin 0.02",
        ),
    ),
    "bench power": ("docs/guides/comparing.md", ("bench power --from latest --mde 0.05", "bench power --from latest")),
    "bench items": (
        "docs/guides/archive.md",
        ("bench items --env gsm8k", "bench items --env gsm8k --subset auto --write small.toml"),
    ),
    "bench trend": (
        "docs/guides/archive.md",
        ("bench trend gsm8k --model gpt-4.1-mini", "bench trend gsm8k --model gpt-4.1-mini --fail-on-drift"),
    ),
    "bench judge": ("docs/guides/judge-labels.md", ("bench judge next latest", "bench judge check latest")),
    "bench judge check": (
        "docs/guides/judge-labels.md",
        ("bench judge check latest --by task", "bench judge check latest --labels labels.csv --save"),
    ),
    "bench judge next": (
        "docs/guides/judge-labels.md",
        ("bench judge next latest -n 50", "bench judge next latest --file labels.jsonl --notes"),
    ),
    "bench report": (
        "docs/guides/report.md",
        ("bench report latest --output report.html", "bench report RUN_A RUN_B --format md --output -"),
    ),
    "bench push": ("docs/guides/hub.md", ("bench push latest --repo my-org/results", "bench push latest --public")),
    "bench env": ("docs/guides/environments.md", ("bench env list", "bench env info gsm8k")),
    "bench env init": (
        "docs/guides/authoring.md",
        ("bench env init my-env", "bench env init my-env --kind multi-turn"),
    ),
    "bench env install": (
        "docs/guides/environments.md",
        ("bench env install ./my-env", "bench env install my-package --yes"),
    ),
    "bench env list": ("docs/guides/environments.md", ("bench env list", "bench env list --json")),
    "bench env info": ("docs/guides/environments.md", ("bench env info gsm8k", "bench env info ./my_env.py")),
    "bench env copy": ("docs/guides/environments.md", ("bench env copy gsm8k", "bench env copy wordle --path mine")),
    "bench env check": ("docs/guides/authoring.md", ("bench env check my-env", "bench env check ./my_env.py --strict")),
    "bench doctor": ("docs/guides/doctor.md", ("bench doctor", "bench doctor configs/eval/suite.toml")),
    "bench serve": (
        "docs/guides/faults.md",
        ("bench serve --env gsm8k --port 8000", "bench serve --env gsm8k --fault 429@every=10"),
    ),
    "bench schema": (
        "docs/guides/suites.md",
        ("bench schema suite --output suite.schema.json", "bench schema endpoints"),
    ),
    "bench exec": ("docs/guides/osmosis.md", ("bench exec evaluate.py", "bench exec evaluate.py --rows 10")),
}
"""Documentation page and example command lines, by command."""


def epilog(command: str) -> str:
    """Return the last paragraphs of the help of a command, such as `bench run`; "" for a command of another package."""
    page, examples = EXAMPLES.get(command, ("", ()))
    if not page:
        return ""
    return "\n".join(["\b", "Examples:", *(f"  {each}" for each in examples), "", f"Documentation: {page}"])
