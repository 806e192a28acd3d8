"""What tests and examples in docstrings need: riffle's program, a directory, a short run."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import tempfile
from typing import Iterator

import pytest

import riffle

collect_ignore = [] if importlib.util.find_spec("torch") else ["riffle/torch.py"]


def pytest_configure() -> None:
    """Build riffle's program from this repository, unless RIFFLE names one, and hear Ctrl-C, which jobs in the background ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.environ.get("RIFFLE"):
        repository = pathlib.Path(__file__).resolve().parent.parent
        program = os.path.join(tempfile.mkdtemp(prefix="riffle-"), "riffle")
        subprocess.run(["go", "build", "-o", program, "./cmd/riffle"], cwd=repository, check=True)
        os.environ["RIFFLE"] = program


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> riffle.Run:
    """A run of two rounds on MNIST."""
    return riffle.train(rounds=2, eval_every=1, out=tmp_path_factory.mktemp("run") / "r")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test works in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    yield
