"""Measures the classic packages under the real releases: the expected results of `test_classic_packages.py`.

Run by hand, once for each generation, with the Python of a virtual environment that has the release (and `math-verify`,
which it needs itself):

    uv venv --python 3.11 b && uv pip install --python b/bin/python 'verifiers==0.1.9.post3'
    uv venv --python 3.11 c && uv pip install --python c/bin/python 'verifiers==0.1.14'
    b/bin/python tests/plugins/classic/measure.py B          # or with the names of plays
    c/bin/python tests/plugins/classic/measure.py C
    b/bin/python tests/plugins/classic/measure.py B names    # checks `packages/expected/names.json` against the release

It loads each package with the release's own `load_environment`, plays it against the scripted server of
`tests/support/classic_server.py` with the release's own client, and writes `packages/expected/NAME.json`. Where the
release's behaviour is a fault, the play says what is right instead (`[[differs]]`), and why; both are written."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))

from classic_server import MODEL, PACKAGES, Play, ScriptedModel, asked, canonical, offered, ordered, plays  # noqa: E402


def main(generation: str, names: list[str]) -> None:
    """Measure all plays of a generation, or those that are named."""
    os.environ.setdefault("OPENAI_API_KEY", "sk-nobody")
    os.environ["TQDM_DISABLE"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    if names == ["names"]:
        check_names(generation)
        return
    for name in names or plays():
        play = Play(name)
        if play.generation == generation:
            whole = measure(play)
            text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
            (PACKAGES / "expected" / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(name, len(whole["results"]), "rollouts")


def measure(play: Play) -> dict[str, Any]:
    """Play a package under the release."""
    with tempfile.TemporaryDirectory() as folder, ScriptedModel(play.name) as server:
        log = Path(folder) / "log"
        os.environ.update(play.environ(server.url, log))
        sys.path[:0] = play.places
        vf = importlib.import_module("verifiers")
        logging.disable(logging.CRITICAL)
        env = vf.load_environment(play.package, **play.args(server.url, log))
        results = asyncio.run(evaluate(env, play, server.url))
        del sys.path[: len(play.places)]
        return {
            "package": play.package,
            "generation": play.generation,
            "release": vf.__version__,
            "rollouts_per_example": play.rollouts,
            "results": ordered(results),
            "asked": asked(server.requests),
            "tools": offered(server.requests),
            "log": sorted(log.read_text().splitlines()) if log.exists() else [],
            "bench": play.differs,
            "asked_differs": play.asked_differs,
        }


def check_names(generation: str) -> None:
    """Whether the release has every name that `test_classic_names.py` wants."""
    listed = json.loads((PACKAGES / "expected" / "names.json").read_text(encoding="utf-8"))[generation]
    listed["verifiers"] += listed.pop("not offered")
    modules = {name: importlib.import_module(name) for name in listed}
    missing = [f"{name}.{each}" for name, module in modules.items() for each in listed[name] if not _has(module, each)]
    print(f"{sum(map(len, listed.values()))} names, missing: {missing}")


def _has(module: Any, name: str) -> bool:
    try:
        return hasattr(module, name) or name in module.__all__  # those whose libraries are missing
    except ImportError:
        return True


async def evaluate(env: Any, play: Play, url: str) -> list[dict[str, Any]]:
    """Results of all rollouts, by the release's own `evaluate`."""
    options: dict[str, Any] = {"model": MODEL, "rollouts_per_example": play.rollouts, "num_examples": -1}
    if play.generation == "B":
        from openai import AsyncOpenAI

        client = AsyncOpenAI(base_url=url, api_key="EMPTY", max_retries=0)
        outputs = await env.evaluate(client=client, **options)
        rows = [dict(state) | {"example_id": state["example_id"]} for state in outputs["state"]]
    else:
        client_config = importlib.import_module("verifiers.types").ClientConfig
        os.environ["SCRIPTED_KEY"] = "EMPTY"
        config = client_config(api_base_url=url, api_key_var="SCRIPTED_KEY", max_retries=0)
        rows = (await env.evaluate(client=config, **options))["outputs"]
    await env._teardown()
    return [result_of(row) for row in rows]


def result_of(row: dict[str, Any]) -> dict[str, Any]:
    """One rollout, as the test compares it."""
    metrics = row["metrics"] or {}
    return {
        "example_id": row["example_id"],
        "completion": canonical(row["completion"]),
        "reward": number(row["reward"]),
        "metrics": {name: number(value) for name, value in sorted(metrics.items())},
        "stop_condition": row["stop_condition"],
        "error": bool(row["error"]),
    }


def number(value: float) -> float | str:
    """A figure that JSON can hold; NaN becomes a word."""
    return round(float(value), 9) if math.isfinite(value) else str(float(value))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)  # the release tears every environment down once more at exit, when their folders are gone
