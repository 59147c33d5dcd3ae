from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from terminals import read_all

from harness.cli.main import main
from harness.settings.layers import LayerName
from harness.settings.schema import SETTINGS

Write = Callable[[str, str], Path]

ORIGINS = set(LayerName.__args__)  # type: ignore[attr-defined]


def test_json_has_every_setting_of_every_run_with_its_origin(bench: Any, write: Write) -> None:
    (Path(sys.path[0]) / "pyproject.toml").write_text('[project]\nname = "toy-env"\n[tool.harness.eval]\ntimeout = 9\n')
    write("configs/endpoints.toml", '[[endpoint]]\nendpoint_id = "mini"\nurl = "http://localhost:1/v1"\nrpm = 5\n')
    write("suite.toml", '[save]\nsave_every = 3\n[[eval]]\n[eval.env]\nenv_id = "toy-env"\nnum_examples = 9\n')
    done = bench("run", "suite.toml", "-m", "mini", "-r", "4", "--set", "env.shuffle=true", "--dry-run", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert list(document) == ["runs"]
    (run,) = document["runs"]
    assert list(run) == ["env_id", "name", "settings"]
    assert (run["env_id"], run["name"]) == ("toy-env", "toy-env")
    settings = run["settings"]
    assert {setting.dotted for setting in SETTINGS} <= set(settings)
    assert all(set(line) == {"value", "origin", "source"} for line in settings.values())
    assert {line["origin"] for line in settings.values()} == ORIGINS
    assert settings["env.num_examples"] == {
        "value": 9,
        "origin": "eval",
        "source": "suite.toml: eval[0].env.num_examples",
    }
    assert settings["env.rollouts_per_example"] == {"value": 4, "origin": "cli", "source": "-r 4"}
    assert settings["env.shuffle"] == {"value": True, "origin": "set", "source": "--set env.shuffle=true"}
    assert settings["env.max_retries"] == {"value": 0, "origin": "builtin", "source": "built-in"}
    assert settings["env.timeout"]["origin"] == "package"
    assert settings["model.rpm"]["origin"] == "registry"
    assert settings["save.save_every"]["origin"] == "defaults"


def test_the_table_shows_the_same(bench: Any, write: Write) -> None:
    write("suite.toml", '[[eval]]\nid = "toy-env"\n[[eval]]\nid = "other-env"\nargs = {split = "[bold]x"}\n')
    done = bench("run", "suite.toml", "-m", "reference/oracle", "-n", "-1", "--dry-run")
    assert not [line for line in done.out.splitlines() if line != line.rstrip()]
    assert done.code == 0
    assert "toy-env × reference/oracle" in done.out
    assert "other-env × reference/oracle" in done.out
    for setting in SETTINGS:
        assert sum(line.split()[:1] == [setting.dotted] for line in done.out.splitlines()) == 2
    assert "-n -1" in done.out
    assert "suite.toml: eval[1].args.split" in done.out
    assert "[bold]x" in done.out  # a value, not markup
    assert "2 runs; no model was called." in done.out


def test_no_name_is_cut_in_a_narrow_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    master, slave = os.openpty()
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(read_all, master)
        with open(slave, "w", encoding="utf-8") as terminal, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            assert main(["run", "toy-env", "-m", "reference/oracle", "--dry-run"]) == 0
    said = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", seen.result()).splitlines()]
    assert max(map(len, said)) <= 80
    assert {setting.dotted for setting in SETTINGS} <= {line.split()[0] for line in said if line}
    assert "…" not in "".join(said)


def test_header_values_that_may_be_secret_are_masked(bench: Any) -> None:
    for extra in ([], ["--json"]):
        done = bench(
            "run", "toy-env", "--header", "Authorization: Bearer canary", "--header", "X-A: plain", "--dry-run", *extra
        )
        assert done.code == 0
        assert "canary" not in done.out + done.err
        assert "plain" in done.out
