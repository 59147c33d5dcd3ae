"""What leaves with an export: the home folder of whoever exports does not."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from odd_runs import odd_run

from harness.plugins.exports.foreign import Source
from harness.store.export_formats import export_run, formats

HOME = "/home/jane.doe"
SETTINGS = {
    "env.env_args": {"rows": f"{HOME}/rows.jsonl", "all": [f"{HOME}:{HOME}/b", f"{HOME}s", "/mnt/home/jane.doe/x"]},
    "model.sampling_args": {"grammar": f"@{HOME}"},
}


@pytest.mark.parametrize("name", ["verifiers", "every-eval-ever", "inspect"])
def test_the_home_folder_is_a_tilde(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)
    run = odd_run(
        tmp_path / "outputs", settings=SETTINGS, command=f"bench run '{HOME}/my env.py' --output-dir={HOME}/runs",
        identity={"env": {"source": f"{HOME}/my env.py"}}, derived={"how": "replay", "path": f"{HOME}/runs/1"},
    )  # fmt: skip
    exported = export_run(run, formats()[name], tmp_path / "there")
    text = ""
    for path in exported.paths:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                text += "".join(archive.read(member).decode() for member in archive.namelist())
        else:
            text += path.read_text()
    assert "~/rows.jsonl" in text
    assert HOME not in text.replace(f"{HOME}s", "").replace(f"/mnt{HOME}", "")


def test_only_the_folder_itself_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = odd_run(tmp_path, settings=SETTINGS, command=f"bench run '{HOME}/my env.py' --output-dir={HOME}/runs")
    monkeypatch.setenv("HOME", HOME)
    shown = Source.read(run).manifest
    assert shown.command == "bench run '~/my env.py' --output-dir=~/runs"
    assert shown.settings["env.env_args"] == {
        "rows": "~/rows.jsonl", "all": ["~:~/b", f"{HOME}s", "/mnt/home/jane.doe/x"],
    }  # fmt: skip
    assert shown.settings["model.sampling_args"] == {"grammar": "@~"}
    assert shown.id == run.read_manifest().id


@pytest.mark.parametrize("home", ["/", ""])
def test_a_home_that_is_no_folder_of_ones_own_is_left_alone(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = odd_run(tmp_path, settings=SETTINGS)
    monkeypatch.setenv("HOME", home)
    assert json.loads(json.dumps(Source.read(run).manifest.settings)) == SETTINGS
