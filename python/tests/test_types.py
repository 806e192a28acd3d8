"""The package's types hold, where mypy is installed."""

import pathlib
import subprocess
import sys

import pytest


def test_types(tmp_path):
    pytest.importorskip("mypy")
    source = pathlib.Path(__file__).resolve().parent.parent
    # The interfaces of PyTorch have gaps of their own.
    files = [str(f) for f in sorted((source / "riffle").glob("*.py")) if f.name != "torch.py"]
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", str(source / "pyproject.toml"), "--cache-dir", str(tmp_path), *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
