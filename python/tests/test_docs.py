"""The documents' examples run: the notebook, the guide, README."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import riffle

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
NOTEBOOK = REPOSITORY / "docs" / "python.ipynb"


def environment():
    return {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(riffle.__file__)), "MPLBACKEND": "Agg", "JUPYTER_PLATFORM_DIRS": "1"}


def blocks(file):
    """The Python blocks of a document, as one script."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", file.read_text(encoding="utf-8"), re.M | re.S))


def run_script(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def test_notebook(tmp_path):
    """It runs in Jupyter, or where Jupyter is not, as a script."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    if not all(importlib.util.find_spec(m) for m in ("nbclient", "nbformat", "ipykernel")):
        run_script("\n".join(code))
        return
    shutil.copy(NOTEBOOK, "n.ipynb")
    script = "import nbformat, nbclient; n = nbformat.read('n.ipynb', 4); nbclient.NotebookClient(n, timeout=600, kernel_name='python3').execute(); nbformat.write(n, 'n.ipynb')"
    # The kernel must be this Python.
    kernel = tmp_path / "kernels" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3", "language": "python"}))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**environment(), "JUPYTER_PATH": str(tmp_path / "kernels")})
    assert done.returncode == 0, done.stderr
    shown = json.loads(pathlib.Path("n.ipynb").read_text(encoding="utf-8"))
    assert "<h3>" in json.dumps(shown), "the run shows no head of its report"


@pytest.mark.parametrize("name", ["docs/python.md", "README.md"])
def test_documents(name):
    script = blocks(REPOSITORY / name)
    assert "riffle.epsilon(" in script
    run_script(script)


def test_figures_of_documents():
    """Each command of a document that shows a figure behind # prints it."""
    scope = {"riffle": riffle}
    seen = 0
    for name in ("docs/python.md", "README.md"):
        for line in blocks(REPOSITORY / name).splitlines():
            call, _, said = line.partition("  # epsilon <= ")
            if said:
                call = call.split(" = ", 1)[-1] if re.match(r"\w+ = ", call) else call
                assert repr(eval(call, scope)) == "epsilon <= " + said, line
                seen += 1
    assert seen >= 2
