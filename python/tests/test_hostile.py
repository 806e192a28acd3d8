"""Run directories that strangers made: whatever their files say, riffle.Error is raised at once and nothing is run."""

import json
import os
import struct

import numpy as np
import pytest

import riffle

METRICS = '{"round":1,"epsilon":0.5,"loss":2,"accuracy":0.25}\n{"round":2,"epsilon":0.75,"loss":1,"accuracy":0.5,"metrics":{"auc":0.7}}\n'
SUMMARY = {"rounds": 2, "epsilon": 0.75, "delta": 1e-5, "test_accuracy": 0.5, "test_loss": 1, "metrics": {"auc": 0.7}}


def write(directory, summary=SUMMARY, metrics=METRICS, config="trust: shuffle\ndelta: 1e-05\n"):
    (directory / "config.yaml").write_text(config)
    (directory / "metrics.jsonl").write_text(metrics)
    (directory / "summary.json").write_text(summary if isinstance(summary, str) else json.dumps(summary))
    return directory


def use(directory):
    """Look at everything that a run has."""
    run = riffle.Run(directory)
    repr(run), run._repr_html_(), run.finished
    return run, run.metrics, run.epsilon, run.delta, run.accuracy, run.loss


def test_honest(tmp_path):
    run, metrics, epsilon, delta, accuracy, loss = use(write(tmp_path))
    assert (epsilon, delta, accuracy, loss) == (0.75, 1e-5, 0.5, 1) and metrics["auc"].tolist()[1] == 0.7 and run.finished
    write(tmp_path, {**SUMMARY, "epsilon": "inf", "test_accuracy": 0.5}, METRICS.replace("0.75", '"inf"'), "trust: none\ndelta: 1e-05\n")
    assert use(tmp_path)[2] == float("inf")


@pytest.mark.parametrize(
    "what, text",
    [
        ("config.yaml", 'delta: "1e-05\n'),
        ("config.yaml", "delta: tiny\n"),
        ("config.yaml", "delta: 1e-09\n"),
        ("summary.json", "{"),
        ("summary.json", "[]"),
        ("summary.json", "[" * 100_000),
        ("summary.json", '{"rounds": ' + "1" * 10_000 + "}"),
        ("summary.json", json.dumps({**SUMMARY, "epsilon": -1})),
        ("summary.json", json.dumps({**SUMMARY, "epsilon": 0.1})),
        ("summary.json", json.dumps({**SUMMARY, "epsilon": None})),
        ("summary.json", json.dumps({**SUMMARY, "epsilon": "little"})),
        ("summary.json", json.dumps({**SUMMARY, "epsilon": float("nan")})),
        ("summary.json", json.dumps({**SUMMARY, "epsilon": [0.75]})),
        ("summary.json", json.dumps({**SUMMARY, "rounds": 1})),
        ("summary.json", json.dumps({**SUMMARY, "delta": 1e-9})),
        ("summary.json", json.dumps({**SUMMARY, "test_accuracy": 0.99})),
        ("summary.json", json.dumps({**SUMMARY, "test_loss": 0.1})),
        ("summary.json", json.dumps({k: v for k, v in SUMMARY.items() if k != "epsilon"})),
        ("metrics.jsonl", ""),
        ("metrics.jsonl", METRICS.replace("0.75", "-0.75")),
        ("metrics.jsonl", METRICS.replace('"round":1', '"round":')),
        ("metrics.jsonl", METRICS.replace('{"auc":0.7}', '"auc"')),
        ("metrics.jsonl", "[1]\n" + METRICS),
        ("metrics.jsonl", "".join(json.dumps({f"n{i}": i}) + "\n" for i in range(1000)) + METRICS),
    ],
    ids=lambda value: value[-60:],
)
def test_wrong_files(tmp_path, what, text):
    write(tmp_path)
    (tmp_path / what).write_text(text)
    with pytest.raises(riffle.Error):
        use(tmp_path)


def test_no_epsilon_below_0_of_a_run_under_way(tmp_path):
    write(tmp_path, metrics=METRICS.replace("0.5,", "-3,"))
    os.remove(tmp_path / "summary.json")
    with pytest.raises(riffle.Error, match="below 0"):
        use(tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "metrics.jsonl", "report.html", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "no text", "loop", "huge"])
def test_what_is_no_file(tmp_path, name, kind):
    write(tmp_path)
    path = tmp_path / name
    if path.exists():
        path.unlink()
    if kind == "pipe":
        pytest.importorskip("fcntl")  # not on Windows
        os.mkfifo(path)
    elif kind == "device":
        os.symlink("/dev/zero", path)
    elif kind == "loop":
        os.symlink(name, path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)  # takes no room
    else:
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(riffle.Error):
        run = use(tmp_path)[0]
        run.model


def test_wrong_model(tmp_path):
    write(tmp_path)
    for raw in [b"", b"x" * 8, struct.pack("<Q", 1 << 60), struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 9) + b'{"w": {}}', struct.pack("<Q", 4) + b"\xff\xff\xff\xff"]:
        (tmp_path / "model.safetensors").write_bytes(raw)
        with pytest.raises(riffle.Error):
            riffle.Run(tmp_path).model


def test_no_page_and_nothing_to_draw(tmp_path):
    write(tmp_path, metrics='{"round":2,"epsilon":0.75}\n', summary={k: v for k, v in SUMMARY.items() if "test" not in k})
    (tmp_path / "report.html").write_text("<h1>x<![endless")
    run = riffle.Run(tmp_path)
    assert "<script" not in run._repr_html_() and np.isnan(run.accuracy)
    with pytest.raises(riffle.Error, match="nothing to draw"):
        run.plot()


@pytest.mark.skipif(os.name != "posix", reason="the command is a shell's")
def test_resume_starts_no_program(tmp_path):
    """Before it was refused, this ran touch."""
    touched = tmp_path / "touched"
    write(tmp_path, config=f'trust: none\ndelta: 1e-05\nrounds: 2\nmodel: external\ngradients: "touch {touched}"\n')
    for name in ("summary.json", "metrics.jsonl"):
        os.remove(tmp_path / name)
    with pytest.raises(riffle.UsageError, match="that only a file names"):
        riffle.train(resume=riffle.Run(tmp_path))
    assert not touched.exists()
