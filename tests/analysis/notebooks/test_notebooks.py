"""The notebooks: kept without outputs, and every cell runs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import analysis

FOLDER = Path(analysis.__file__).parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SAYS = {"profile_a_cluster": " kB by 2 ranks: "}
"""What one of the outputs must hold."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell for cell in cells if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(FOLDER)}}).execute()
    said = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    assert SAYS.get(path.stem, "") in "".join(said)
