"""The program's side of the gradient protocol, spoken to as riffle speaks."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import riffle
from riffle import _gradients, _safetensors

PACKAGE = os.path.dirname(os.path.dirname(riffle.__file__))


class Riffle:
    """The other side: sends requests and reads answers."""

    def __init__(self, requests, answers):
        self.requests, self.answers = requests, answers

    def send(self, op, tensors=None, **metadata):
        frame = _safetensors.dumps(tensors or {}, {"op": op, **metadata})
        self.requests.write(struct.pack("<Q", len(frame)) + frame)
        self.requests.flush()

    def read(self):
        head = self.answers.read(8)
        assert len(head) == 8, "no answer"
        return _safetensors.loads(self.answers.read(struct.unpack("<Q", head)[0]))

    def ask(self, op, tensors=None, **metadata):
        self.send(op, tensors, **metadata)
        return self.read()


X, Y = np.eye(4, dtype=np.float32), np.array([0, 1, 1, 0], np.float32)


@riffle.gradients(initial={"weight": np.zeros(4), "bias": np.full((), 0.5)}, clients=4, name="squares")
def program(theta, ids, round_):
    if round_ == 99:
        raise ZeroDivisionError("no\nluck")
    off = X[ids] @ theta["weight"] + theta["bias"] - Y[ids]
    return {"bias": off, "weight": off[:, None] * X[ids]}


@program.evaluate
def evaluate(theta):
    return {"loss": float(np.mean((X @ theta["weight"] + theta["bias"] - Y) ** 2)), "auc": float("nan")}


@contextlib.contextmanager
def connected(served, folder):
    """A session with a program that listens."""
    path = os.path.join(str(folder), "s")
    with _gradients.listen(served, path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(30)
            s.connect(path)
            with s.makefile("wb") as out, s.makefile("rb") as answers:
                yield Riffle(out, answers)


def begin(r, purpose="simulate", **more):
    return r.ask("open", version="1", purpose=purpose, task="", seed="1", **more)


def test_session(tmp_path, capfd):
    with connected(program, tmp_path) as r:
        tensors, says = begin(r)
        assert says == {"op": "open", "version": "1", "clients": "4", "dim": "5", "name": "squares", "parameters": "weight=4 bias="}
        assert tensors["initial"].dtype == np.float32 and tensors["initial"].tolist() == [0, 0, 0, 0, 0.5]
        theta = np.array([1, 2, 3, 4, 0.5], np.float32)
        # Two requests at once: answers come in their order.
        r.send("gradients", {"theta": theta, "ids": np.array([2, 0])}, round="1")
        r.send("evaluate", {"theta": theta})
        tensors, says = r.read()
        assert says == {"op": "gradients"} and list(tensors) == ["gradients"]
        assert tensors["gradients"].dtype == np.float32 and tensors["gradients"].tolist() == [[0, 0, 2.5, 0, 2.5], [1.5, 0, 0, 0, 1.5]]
        tensors, says = r.read()
        assert tensors == {} and says["op"] == "evaluate" and says["auc"] == "nan" and float(says["loss"]) > 1
        # An error of the function is one line, and its traceback is shown on stderr.
        assert r.ask("gradients", {"theta": theta, "ids": np.array([2])}, round="99")[1] == {"op": "error", "message": "ZeroDivisionError: no luck"}
        assert "Traceback" in capfd.readouterr().err
        r.send("close")
        assert r.answers.read() == b""


@pytest.mark.parametrize(
    "metadata, message",
    [
        (dict(version="2", purpose="simulate"), "version 2 of the protocol, this program speaks 1"),
        (dict(version="1", purpose="sell"), "does not serve the purpose 'sell'"),
        (dict(version="1", purpose="simulate", clients="5"), "has the data of 4 clients, not of 5"),
    ],
)
def test_open_is_refused(tmp_path, metadata, message):
    with connected(program, tmp_path) as r:
        says = r.ask("open", **metadata)[1]
        assert says["op"] == "error" and message in says["message"]


def test_purposes(tmp_path):
    plain = riffle.gradients(dim=2)(lambda theta, ids: np.zeros((len(ids), 2)))
    with connected(plain, tmp_path) as r:
        assert "clients=" in begin(r)[1]["message"]
    with connected(plain, tmp_path) as r:
        assert "no evaluation" in begin(r, "evaluate")[1]["message"]
    with connected(plain, tmp_path) as r:
        tensors, says = begin(r, "client")
        assert says["dim"] == "2" and "clients" not in says and "parameters" not in says and tensors == {}
    with connected(program, tmp_path) as r:
        assert begin(r, clients="3")[1]["clients"] == "3"


@pytest.mark.parametrize(
    "answer, message",
    [
        (np.zeros((3, 4)), r"shape \(3, 4\), want \(3, 5\): a row for each client"),
        (np.zeros(5), "want .3, 5."),
        ({"weight": np.zeros((3, 4))}, "names weight, the parameters weight, bias"),
        ({"weight": np.zeros((3, 4)), "bias": np.zeros((3, 1))}, r"bias have shape \(3, 1\), want \(3,\)"),
        (None, "want"),
    ],
)
def test_wrong_answers_of_the_function(tmp_path, answer, message):
    import re

    wrong = riffle.gradients(initial={"weight": np.zeros(4), "bias": np.zeros(())}, clients=4)(lambda theta, ids: answer)
    with connected(wrong, tmp_path) as r:
        begin(r)
        says = r.ask("gradients", {"theta": np.zeros(5, np.float32), "ids": np.arange(3)}, round="1")[1]
        assert says["op"] == "error" and re.search(message, says["message"])


def test_flat_and_seeded(tmp_path):
    @riffle.gradients(lambda seed: np.full(3, seed), clients=9, update="delta")
    def flat(theta, ids):
        return np.outer(ids, theta) * 1e300  # infinite as float32

    with connected(flat, tmp_path) as r:
        tensors, says = r.ask("open", version="1", purpose="simulate", seed="7")
        assert tensors["initial"].tolist() == [7, 7, 7] and says["update"] == "delta" and says["name"] == "flat"
        rows = r.ask("gradients", {"theta": np.ones(3, np.float32), "ids": np.array([0, 1])}, round="1")[0]["gradients"]
        assert rows[0].tolist() == [0, 0, 0] and np.isinf(rows[1]).all()


def test_requests_before_open_and_unknown_ones(tmp_path):
    with connected(program, tmp_path) as r:
        assert "before open" in r.ask("gradients", {"theta": np.zeros(5, np.float32), "ids": np.arange(1)}, round="1")[1]["message"]
        begin(r)
        assert "unknown op 'dance'" in r.ask("dance")[1]["message"]


def test_long_requests_are_not_read(tmp_path, capfd):
    with connected(program, tmp_path) as r:
        r.requests.write(struct.pack("<Q", 1 << 40))
        r.requests.flush()
        assert r.answers.read() == b""
    assert f"a request of {1 << 40} bytes, at most" in capfd.readouterr().err


def test_evaluations_are_checked(tmp_path):
    for numbers, message in [({}, "must return a loss; it returned nothing"), ({"loss": 1, "F1": 2}, "'F1' must be named by a-z"), ({"loss": 1, "op": 2}, "'op' must be")]:
        wrong = riffle.gradients(dim=1, clients=1)(lambda theta, ids: 0)
        wrong.evaluate(lambda theta: numbers)
        with connected(wrong, tmp_path) as r:
            begin(r)
            assert message in r.ask("evaluate", {"theta": np.zeros(1, np.float32)})[1]["message"]


def test_constructor_refuses():
    f = lambda theta, ids: 0  # noqa: E731
    for given, message in [
        (dict(), "either initial"),
        (dict(initial=np.zeros(2), dim=2), "either initial"),
        (dict(dim=1, update="model"), "'gradient' or 'delta'"),
    ]:
        with pytest.raises(riffle.UsageError, match=message):
            riffle.gradients(**given)(f)
    for given, message in [
        (dict(dim=0), "dim = 0 must be between 1 and 10000000"),
        (dict(initial={"a b": np.zeros(2)}), "name 'a b' must be"),
        (dict(initial=np.array([np.nan])), "must be finite"),
        (dict(initial={}), "no arrays"),
    ]:
        with pytest.raises(riffle.UsageError, match=message):
            riffle.gradients(**given)(f).start()
    with pytest.raises(riffle.UsageError, match="dim belongs to the decorator"):
        riffle.serve(program, dim=3)
    with pytest.raises(riffle.UsageError, match="must be unix:PATH"):
        riffle.serve(program, "tcp:1")
    with pytest.raises(riffle.UsageError, match="must be unix:PATH"):
        riffle.serve(program, "unix:@name")


def test_socket_is_private_and_taken_over(tmp_path):
    path = str(tmp_path / "s")
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(path)
    left.close()  # as after a kill
    with _gradients.listen(program, path):
        assert os.stat(path).st_mode & 0o777 == 0o600
        with pytest.raises(riffle.Error, match="[Aa]ddress already in use"):
            with _gradients.listen(program, path):
                pass
    assert not os.path.exists(path)


def test_socket_replaces_no_file(tmp_path):
    file = tmp_path / "precious"
    file.write_text("data")
    with pytest.raises(riffle.Error, match="[Aa]ddress already in use"):
        with _gradients.listen(program, str(file)):
            pass
    assert file.read_text() == "data"
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(riffle.Error, match="[Aa]ddress already in use"):
        with _gradients.listen(program, str(tmp_path / "link")):
            pass
    assert file.read_text() == "data" and (tmp_path / "link").is_symlink()


def test_several_sessions_at_once(tmp_path):
    path = str(tmp_path / "s")
    failed = []

    def client(i):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.connect(path)
            with s.makefile("wb") as out, s.makefile("rb") as answers:
                r = Riffle(out, answers)
                begin(r)
                for _ in range(20):
                    rows = r.ask("gradients", {"theta": np.zeros(5, np.float32), "ids": np.array([i % 4])}, round="1")[0]["gradients"]
                    if rows.tolist() != [[*(-Y[i % 4] * X[i % 4]), -Y[i % 4]]]:
                        failed.append(i)

    with _gradients.listen(program, path):
        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not failed


def started(script):
    """Start a Python program that serves over its standard input and output."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": PACKAGE})


def test_standard_input_and_output():
    """What a program prints, also from C, does not get between its answers."""
    child = started(
        """
        import os, numpy as np, riffle
        print("starts")
        def f(theta, ids):
            print("computes")
            os.write(1, b"raw")
            return np.ones((len(ids), 2))
        riffle.serve(f, dim=2, clients=3)
        """
    )
    # What was printed before serve took the output over is the program's own mistake.
    assert child.stdout.readline() == b"starts\n"
    r = Riffle(child.stdin, child.stdout)
    assert begin(r)[1]["dim"] == "2"
    assert r.ask("gradients", {"theta": np.zeros(2, np.float32), "ids": np.arange(2)}, round="1")[0]["gradients"].tolist() == [[1, 1], [1, 1]]
    r.send("close")
    _, said = child.communicate(timeout=30)
    assert child.returncode == 0 and b"computes" in said and b"raw" in said


def test_input_that_ends():
    child = started("import riffle; riffle.serve(lambda t, i: 0, dim=1, clients=1)")
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (0, b"", b"")
    child = started("import riffle; riffle.serve(lambda t, i: 0, dim=1, clients=1)")
    out, err = child.communicate(struct.pack("<Q", 100) + b"{", timeout=30)
    assert child.returncode == 1 and b"a request ended after 1 of 100 bytes" in err


def test_safetensors():
    arrays = {"a": np.arange(6, dtype=">i4").reshape(2, 3), "b": np.array(True), "c": np.zeros((0, 5), np.float64), "d": np.float16(1.5)}
    again, metadata = _safetensors.loads(_safetensors.dumps(arrays, {"ü": "é"}))
    assert metadata == {"ü": "é"} and list(again) == ["a", "b", "c", "d"]
    for name, array in arrays.items():
        assert again[name].shape == np.shape(array) and (again[name] == array).all()
    assert _safetensors.dumps({})[8:] == b"{}      "
    header = b'{"x":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    assert _safetensors.loads(struct.pack("<Q", len(header)) + header + b"\xc0\x3f")[0]["x"].tolist() == [1.5]
    with pytest.raises(riffle.Error, match="complex"):
        _safetensors.dumps({"a": np.zeros(1, complex)})


@pytest.mark.parametrize(
    "header, data, message",
    [
        (b"[]", b"", "no object"),
        (b"{", b"", "not JSON"),
        (b'{"a":1,"a":2}', b"", "'a' occurs twice"),
        (b'{"__metadata__":{"a":1}}', b"", "metadata must be texts"),
        (b'{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}', b"1234", "known dtype"),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', b"1234", "do not hold F32"),
        (b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"1234", "do not hold"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"12345", "1 bytes behind"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"12345678", "overlap or leave a hole"),
        (b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', b"123", "overlap"),
        (b"[" * 200_000, b"", "nested too deeply"),
        (b'{"a":' * 200_000, b"", "nested too deeply"),
        (b'{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,4]}}' % b",".join([b"9" * 4000] * 2000), b"1234", "4000 digits"),
        (b'{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,4]}}' % b",".join([b"9" * 19] * 100_000), b"1234", "do not hold"),
        (b'{"a":{"dtype":"U8","shape":[0,9223372036854775807,4],"data_offsets":[0,0]}}', b"", "cannot hold"),
        (b'{"a":{"dtype":"U8","shape":[0,99999999999999999999],"data_offsets":[0,0]}}', b"", "cannot hold"),
        (b'{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,1]}}' % b",".join([b"1"] * 65), b"1", "do not hold"),
        (b'{"a":{"dtype":"U8","shape":"","data_offsets":[0,1]}}', b"1", "do not hold"),
        (b'{"a":{"dtype":"U8","shape":{},"data_offsets":[0,1]}}', b"1", "do not hold"),
    ],
)
def test_bad_safetensors(header, data, message):
    with pytest.raises(riffle.Error, match=message):
        _safetensors.loads(struct.pack("<Q", len(header)) + header + data)
    with pytest.raises(riffle.Error):
        _safetensors.loads(b"1234567")
    with pytest.raises(riffle.Error, match="header of"):
        _safetensors.loads(struct.pack("<Q", 1 << 60) + b"{}")


def test_train_with_a_function():
    """riffle train computes with a function of this process, where riffle has the protocol."""
    if "gradients" not in riffle._binary.flags("train"):
        pytest.skip("this riffle has no --gradients")
    run = riffle.train(gradients=program, trust="none", rounds=5, eval_every=1, out="r")
    assert len(run.metrics["loss"]) == 5
    # Its socket is another one each time; only what is named again is opened.
    with pytest.raises(riffle.UsageError, match="that only a file names"):
        riffle.train(resume=run)
    assert riffle.train(resume=run, gradients=program).summary["test_loss"] == run.summary["test_loss"]
