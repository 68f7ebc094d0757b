"""The notebook runs from its first to its last cell, and is committed with its pictures."""

import json
import os
import subprocess
import sys

import pytest
from conftest import REPO

NOTEBOOK = REPO / "docs" / "notebook.ipynb"
TINY = 'DATA, EPOCHS, RUN = "scenes:130,30", 1, "runs/notebook"'  # a run of one step
# In a process of its own: a kernel leaves sockets and event loops behind, whose warnings pytest would report.
EXECUTE = """
import sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

notebook = nbformat.read("notebook.ipynb", as_version=4)
kernel = AsyncKernelManager(kernel_name="python3")
kernel.kernel_spec.argv[0] = sys.executable
NotebookClient(notebook, km=kernel, timeout=300).execute()
nbformat.write(notebook, "executed.ipynb")
"""


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(cell: dict) -> list[tuple[str, list[str]]]:
    """The types of a cell's outputs."""
    return [(output["output_type"], sorted(output.get("data", {}))) for output in cell["outputs"]]


@pytest.fixture
def committed() -> dict:
    """The notebook in the repository."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_it_runs_on_fewer_images(committed, tmp_path):
    """Every cell gives outputs of the same kinds as in the committed notebook: no errors, no other text."""
    expected = [kinds(cell) for cell in code_cells(committed)]
    [parameters] = [cell for cell in code_cells(committed) if cell["source"][0].startswith("DATA = ")]
    parameters["source"] = [TINY]
    (tmp_path / "notebook.ipynb").write_text(json.dumps(committed), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=400
    )
    assert done.returncode == 0, done.stderr
    executed = json.loads((tmp_path / "executed.ipynb").read_text(encoding="utf-8"))
    assert [kinds(cell) for cell in code_cells(executed)] == expected


def test_what_is_committed(committed):
    """Outputs with pictures, in order; nothing of the machine that computed them."""
    text, cells = NOTEBOOK.read_text(encoding="utf-8"), code_cells(committed)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert len(text) < 300_000
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum("image/jpeg" in output.get("data", {}) for output in outputs) >= 6
    assert {output["output_type"] for output in outputs} <= {"display_data", "execute_result", "stream"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    shown = json.dumps([{**output, "data": {**output.get("data", {}), "image/jpeg": ""}} for output in outputs])
    assert not [
        word for word in ("/home/", "/root/", "/tmp/", "/work/", "site-packages", "\\\\Users\\\\") if word in shown
    ]
    assert all(not cell["metadata"] for cell in committed["cells"])
    assert {*committed["metadata"]} == {"kernelspec", "language_info"}
    assert committed["metadata"]["language_info"] == {"name": "python"}
