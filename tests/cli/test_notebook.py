"""The notebook of the guides, run by a real kernel: every cell, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from late import Late

nbformat, nbclient = Late("nbformat"), Late("nbclient")
NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "guides" / "evaluate.ipynb"


def shown(notebook: Any) -> list[str]:
    """What the cells return, as text."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]


@pytest.mark.slow
def test_the_notebook_shows_what_it_says(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    expected = shown(notebook)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(notebook) == expected and len(expected) == 6
    streams = [output.text for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
               if output.output_type == "stream"]  # fmt: skip
    assert any("40/40" in text for text in streams)  # the progress bar
    assert not [text for text in streams if "note:" in text or "Warning" in text]
