#!/usr/bin/env python3
"""Gradients of a small network for riffle, with numpy and nothing else.

    riffle train --gradients 'python3 python/examples/numpy_mlp.py'
    riffle train --gradients 'python3 python/examples/numpy_mlp.py --data DIR'

One client has one image and its label. Without --data the images are drawn: ten classes,
6,000 clients. DIR holds MNIST's four IDX files, plain or .gz; Fashion-MNIST has the same.

The network has one hidden layer. Each client's gradient is its own: no client's row depends on
another's data. riffle clips and randomizes the rows; this program does neither.

The protocol is docs/SPEC.md, section "Gradients from a program".
"""

import argparse
import gzip
import json
import os
import socket
import struct
import sys

import numpy as np

# ---- frames: 8 bytes of length, then one safetensors document ----


def read_exactly(stream, n):
    data = stream.read(n)
    if data is None or len(data) < n:
        raise EOFError
    return data


def read_frame(stream):
    """Returns the metadata and the tensors of the next request."""
    (length,) = struct.unpack("<Q", read_exactly(stream, 8))
    document = read_exactly(stream, length)
    (n,) = struct.unpack_from("<Q", document)
    header = json.loads(document[8 : 8 + n])
    meta = header.pop("__metadata__", {})
    types = {"F32": "<f4", "I64": "<i8"}
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        tensors[name] = np.frombuffer(
            document, types[t["dtype"]], (end - begin) // np.dtype(types[t["dtype"]]).itemsize, 8 + n + begin
        ).reshape(t["shape"])
    return meta, tensors


def write_frame(stream, meta, name=None, tensor=None):
    """Answers with metadata and at most one tensor of float32."""
    header = {"__metadata__": {k: str(v) for k, v in meta.items()}}
    data = b""
    if name is not None:
        tensor = np.ascontiguousarray(tensor, "<f4")
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [0, tensor.nbytes]}
        data = memoryview(tensor).cast("B")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<QQ", 8 + len(text) + len(data), len(text)) + text)
    stream.write(data)
    stream.flush()


# ---- data ----


def read_idx(folder, name):
    for path in (os.path.join(folder, name), os.path.join(folder, name + ".gz")):
        if os.path.exists(path):
            with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
                raw = f.read()
            dims = raw[3]
            shape = struct.unpack_from(">%dI" % dims, raw, 4)
            return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)
    raise SystemExit("%s: no file %s, also not with .gz" % (folder, name))


def load_images(folder):
    def part(prefix):
        x = read_idx(folder, prefix + "-images-idx3-ubyte")
        y = read_idx(folder, prefix + "-labels-idx1-ubyte")
        x = x.reshape(len(x), -1).astype(np.float32) / 255
        return x - 0.28, y.astype(np.int64)  # 0.28 is a constant, not read off these data

    return part("train") + part("t10k")


def draw_images(clients, classes=10, inputs=64):
    """Images of ten patterns with noise; the same for everybody."""
    rng = np.random.default_rng(1)
    patterns = rng.normal(size=(classes, inputs)).astype(np.float32)

    def part(n):
        y = rng.integers(classes, size=n)
        x = 0.35 * patterns[y] + 0.5 * rng.normal(size=(n, inputs)).astype(np.float32)
        return x.astype(np.float32), y

    return part(clients) + part(2000)


# ---- model: inputs -> hidden (tanh) -> classes, softmax ----


class Network:
    def __init__(self, inputs, hidden, classes):
        self.shapes = [
            ("hidden.weight", (inputs, hidden)),
            ("hidden.bias", (hidden,)),
            ("output.weight", (hidden, classes)),
            ("output.bias", (classes,)),
        ]
        self.dim = sum(int(np.prod(shape)) for _, shape in self.shapes)

    def initial(self, seed):
        rng = np.random.default_rng(seed)
        parts = []
        for _, shape in self.shapes:
            bound = np.sqrt(6 / sum(shape)) if len(shape) == 2 else 0
            parts.append(rng.uniform(-bound, bound, size=shape).ravel())
        return np.concatenate(parts).astype(np.float32)

    def parts(self, theta):
        at = 0
        for _, shape in self.shapes:
            size = int(np.prod(shape))
            yield theta[at : at + size].reshape(shape)
            at += size

    def forward(self, theta, x):
        w1, b1, w2, b2 = self.parts(theta)
        h = np.tanh(x @ w1 + b1)
        z = h @ w2 + b2
        z -= z.max(axis=1, keepdims=True)
        return h, z - np.log(np.exp(z).sum(axis=1, keepdims=True))  # log of the probabilities

    def gradients(self, theta, x, y):
        """One row for each example: the gradient of its own loss."""
        h, logp = self.forward(theta, x)
        d2 = np.exp(logp)
        d2[np.arange(len(y)), y] -= 1
        _, _, w2, _ = self.parts(theta)
        d1 = (d2 @ w2.T) * (1 - h * h)
        rows = np.empty((len(y), self.dim), np.float32)
        at = 0
        for left, right in ((x, d1), (None, d1), (h, d2), (None, d2)):
            g = right if left is None else np.einsum("ni,nj->nij", left, right).reshape(len(y), -1)
            rows[:, at : at + g.shape[1]] = g
            at += g.shape[1]
        return rows

    def evaluate(self, theta, x, y):
        _, logp = self.forward(theta, x)
        return {
            "loss": float(-logp[np.arange(len(y)), y].mean()),
            "accuracy": float((logp.argmax(axis=1) == y).mean()),
            "examples": len(y),
        }


# ---- the conversation ----


def converse(requests, answers, options):
    x = y = test_x = test_y = model = None
    while True:
        try:
            meta, tensors = read_frame(requests)
        except EOFError:
            return
        op = meta["op"]
        if op == "close":
            return
        try:
            if op == "open":
                x, y, test_x, test_y = load_images(options.data) if options.data else draw_images(options.clients)
                n = int(meta.get("clients", len(x)))
                if meta["purpose"] == "simulate" and n > len(x):
                    raise ValueError("there are images for %d clients, asked for are %d" % (len(x), n))
                model = Network(x.shape[1], options.hidden, int(y.max()) + 1)
                answer = {
                    "op": op,
                    "version": "1",
                    "dim": model.dim,
                    "clients": n,
                    "name": "numpy network",
                    "parameters": " ".join("%s=%s" % (k, "x".join(map(str, s))) for k, s in model.shapes),
                }
                write_frame(answers, answer, "initial", model.initial(int(meta["seed"])))
            elif op == "gradients":
                ids = tensors["ids"] % len(x)  # a client of a task may have any number
                write_frame(answers, {"op": op}, "gradients", model.gradients(tensors["theta"], x[ids], y[ids]))
            elif op == "evaluate":
                numbers = model.evaluate(tensors["theta"], test_x, test_y)
                share = np.bincount(test_y) / len(test_y)
                numbers["baseline_accuracy"] = float(share.max())
                numbers["baseline_loss"] = float(-(share[share > 0] * np.log(share[share > 0])).sum())
                write_frame(answers, {"op": op, **{k: repr(v) for k, v in numbers.items()}})
            else:
                raise ValueError("operation %r is not known" % op)
        except (ValueError, OSError) as e:
            write_frame(answers, {"op": "error", "message": str(e)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="folder with four IDX files (default: images are drawn)")
    parser.add_argument("--clients", type=int, default=6000, help="clients whose images are drawn")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--listen", help="serve connections on this Unix socket, one after the other")
    options = parser.parse_args()
    if options.listen:
        server = socket.socket(socket.AF_UNIX)
        server.bind(options.listen)
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as requests, connection.makefile("wb") as answers:
                try:
                    converse(requests, answers, options)
                except (EOFError, OSError) as e:
                    print("a connection ended: %s" % e, file=sys.stderr)
    # Standard output is for answers. What else prints there goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    converse(sys.stdin.buffer, answers, options)


if __name__ == "__main__":
    main()
