"""Training from Python: the run as arrays, its page's head, pictures, Ctrl-C."""

import json
import os
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import riffle
from riffle import _run, _train


def test_metrics_are_those_of_the_file(run):
    with open(os.path.join(run.directory, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    for name in ("round", "epsilon", "loss", "accuracy"):
        assert run.metrics[name].tolist() == [row[name] for row in rows]
    assert run.finished and run.accuracy == run.summary["test_accuracy"] > 0.5
    assert run.epsilon == run.summary["epsilon"] and run.delta == 1e-5
    assert run.config["model"] == "ink-linear" and run.config["lr"] == "20"
    assert any(note.startswith("riffle: planned cost: ") for note in run.notes)


def test_model_is_that_of_the_file(run):
    with open(os.path.join(run.directory, "model.safetensors"), "rb") as file:
        raw = file.read()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    for name, array in run.model.items():
        first, last = header[name]["data_offsets"]
        assert array.tobytes() == raw[8 + length + first : 8 + length + last] and list(array.shape) == header[name]["shape"]
    assert run.provenance == header["__metadata__"] and run.provenance["riffle.model"] == "ink-linear"


def test_head_of_the_report(run):
    text = run._repr_html_()
    assert "<h3>ink-linear on mnist</h3>" in text
    assert "60,000 clients" in text and "Proved: differential privacy" in text
    assert f"<b>{100 * run.accuracy:.2f} %</b>" in text and "Test accuracy" in text
    assert "<script" not in text
    assert f"accuracy {100 * run.accuracy:.2f} %, epsilon 0.0" in repr(run)


def test_head_without_a_page(run, tmp_path):
    for name in ("config.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes(open(os.path.join(run.directory, name), "rb").read())
    half = riffle.Run(tmp_path)
    assert not half.finished and "not finished" in repr(half) and half.accuracy == run.accuracy
    assert "not finished" in half._repr_html_()
    with pytest.raises(riffle.UsageError, match="no model yet"):
        half.model


def test_no_run_there(tmp_path):
    with pytest.raises(riffle.UsageError, match="no run there"):
        riffle.Run(tmp_path)


def test_plot_by_matplotlib(run):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = run.plot()
    assert axes[0].get_lines()[0].get_ydata().tolist() == run.metrics["accuracy"].tolist()
    assert axes[0].get_lines()[1].get_ydata()[0] == run.summary["baseline_accuracy"]
    assert axes[1].get_lines()[0].get_ydata().tolist() == run.metrics["epsilon"].tolist()


def test_plot_without_matplotlib(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    picture = run.plot()
    assert picture.svg.count("<polyline") == 2 and "baseline" in picture.svg and "nan" not in picture.svg


def test_frame(run):
    pytest.importorskip("pandas")
    assert list(run.frame()["accuracy"]) == run.metrics["accuracy"].tolist()


def test_settings_and_gaps():
    assert _run._settings('# c\nlr: "0.3,0.18@420"\nout: \'a\'\nn-min: 2\n') == {"lr": "0.3,0.18@420", "out": "a", "n-min": "2"}


def test_metrics_with_gaps(tmp_path):
    (tmp_path / "config.yaml").write_text("trust: none\n")
    (tmp_path / "metrics.jsonl").write_text('{"round":1,"loss":2,"epsilon":null}\n{"round":2,"loss":1,"metrics":{"auc":0.7,"round":9}}\n{"round":3,"lo')
    half = riffle.Run(tmp_path)
    assert half.metrics["loss"].tolist() == [2, 1] and np.isnan(half.metrics["auc"][0]) and half.metrics["auc"][1] == 0.7
    assert half.metrics["round"].tolist() == [1, 2] and "metrics" not in half.metrics
    assert half.epsilon == float("inf") and "no privacy" in repr(half)


@pytest.fixture
def table(tmp_path):
    """A table of 400 rows."""
    (tmp_path / "t.csv").write_text("age,y\n" + "".join(f"{i % 100},{int(i % 100 > 50)}\n" for i in range(400)))
    return "t.csv"


def test_arguments_become_flags(table):
    run = riffle.train(table, label="y", range={"age": (0, 100)}, trust="vector-sum", epsilon=1, rounds=2, lambda_=0.01, out="r", progress=False)
    assert run.config["range"] == "age=0..100" and run.config["lambda"] == "0.01" and run.config["trust"] == "vector-sum"
    assert run.epsilon <= 1
    assert run.metrics["auc"][-1] == run.summary["metrics"]["auc"]


def test_declared_columns(tmp_path):
    (tmp_path / "t.csv").write_text("id,age,city,y\n" + "".join(f"u{i},{'' if i % 9 == 0 else i % 100},{'paris' if i % 3 else 'rome'},{'yes' if i % 100 > 50 else 'no'}\n" for i in range(400)))
    run = riffle.train("t.csv", label="y", range={"age": (0, 100)}, categories={"city": ["paris", "*"]}, missing={"age": "40+indicator"}, drop=["id"], classes=["no", "yes"], trust="none", rounds=1, out="r")
    assert run.config["categories"] == "city=paris|*" and run.config["classes"] == "no|yes" and run.model["weight"].shape == (4,)
    with pytest.raises(riffle.UsageError, match="--missing"):
        riffle.train("t.csv", label="y", categories={"city": ["paris", "*"]}, drop="id", out="s")


def test_errors(tmp_path):
    with pytest.raises(riffle.UsageError, match="no such file"):
        riffle.train("gone.csv", label="y")
    with pytest.raises(riffle.UnknownArgument, match=r"did you mean epsilon \(--epsilon: privacy budget"):
        riffle.train(epsilonn=1)
    with pytest.raises(riffle.UsageError, match="contradicts --resume"):
        riffle.train(resume="r", rounds=3)


def test_warnings(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{1000 + i},{i % 2}\n" for i in range(100)))
    with pytest.warns(riffle.RiffleWarning, match="column x has values of about"):
        riffle.train("t.csv", label="y", rounds=1, trust="none", out="r")


def test_progress(table, capsys):
    said = []
    small = dict(label="y", trust="none", range="age=0..100", rounds=1)
    riffle.train(table, **small, out="a", progress=said.append)
    assert any(text.startswith("round 1/1  test accuracy ") for text in said)
    riffle.train(table, **small, out="b", progress=True)
    shown = capsys.readouterr().err
    assert shown.startswith("\rround 1/1") and shown.endswith("\n")
    riffle.train(table, **small, out="c")  # nobody watches
    assert capsys.readouterr().err == ""


INTERRUPTED = """
import riffle, sys
try:
    riffle.train("t.csv", label="y", range="age=0..100", trust="none", rounds=3000, eval_every=1, seed=3, out="r", progress=lambda text: print(text, flush=True))
except riffle.Interrupted as stop:
    print("INTERRUPTED", stop.directory, stop, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_and_resume(table):
    """Ctrl-C as a terminal sends it, to the whole process group: the run stops with its state, and goes on to the same model."""
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(riffle.__file__))})
    said = []
    for line in child.stdout:
        said.append(line)
        if line.startswith("round 2/"):
            os.killpg(child.pid, signal.SIGINT)
    assert child.wait() == 0
    assert said[-1].startswith("INTERRUPTED r "), said
    assert "riffle train --resume r" in said[-1]
    half = riffle.Run("r")
    assert not half.finished and 2 <= half.metrics["round"][-1] < 3000
    whole = riffle.train(resume=half)
    straight = riffle.train(table, label="y", range="age=0..100", trust="none", rounds=3000, eval_every=3000, seed=3, out="s")
    assert whole.finished and sorted(whole.model) == sorted(straight.model)
    for name, array in whole.model.items():
        assert array.tobytes() == straight.model[name].tobytes()


def test_interrupt_before_the_run(monkeypatch):
    """Ctrl-C while the data are still read: there is no directory to go on with."""

    class Interrupting(subprocess.Popen):
        def wait(self, timeout=None):
            if not child.lines and not seen:
                seen.append(True)
                os.kill(os.getpid(), signal.SIGINT)
            return super().wait(timeout)

    seen = []
    child = _train._Child(["train", "--rounds=2", "--no-progress", "--json"], None)
    monkeypatch.setattr(_train.subprocess, "Popen", Interrupting)
    with pytest.raises(riffle.Interrupted) as stop:
        child.run()
    assert stop.value.directory is None or os.path.isdir(stop.value.directory)


def test_error_of_a_progress_function(table):
    """It stops the run, which can be resumed, and is raised."""

    def broken(text):
        if text.startswith("round 1/"):
            raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken"):
        riffle.train(table, label="y", range="age=0..100", trust="none", rounds=3000, eval_every=1, out="r", progress=broken)
    half = riffle.Run("r")
    assert not half.finished and half.metrics["round"][-1] < 3000
