"""The package installs into a fresh virtual environment, and works there."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import riffle

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def test_fresh_environment(tmp_path):
    pytest.importorskip("ensurepip", reason="the module venv cannot install pip here (Debian: python3-venv)")
    pytest.importorskip("setuptools")
    source = tmp_path / "python"  # a build leaves files in its source
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    # The environment of a virtual one that runs the tests has not all of the system's packages.
    subprocess.run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--system-site-packages", "env"], check=True)
    python = str(tmp_path / "env" / "bin" / "python")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", str(source)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    script = "import riffle, os; print(os.path.dirname(riffle.__file__)); print(riffle.epsilon('all', eps0=2.5, n=60000, rounds=160, delta=1e-5, bounds='best'))"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, env=env)
    folder, answer = done.stdout.splitlines()
    assert folder.startswith(str(tmp_path / "env")) and answer == "epsilon <= 0.8252 at delta = 1e-05 (blanket-pld, proved)"
    assert os.path.exists(os.path.join(folder, "py.typed"))
    listed = subprocess.run([python, "-m", "pip", "show", "riffle"], capture_output=True, text=True, env=env).stdout
    assert f"Version: {riffle.__version__}\n" in listed and "Requires: numpy\n" in listed
