#!/usr/bin/env python3
"""Gradients of a convolutional network for riffle, with PyTorch.

    riffle train --gradients 'python3 python/examples/fashion_torch.py --data DIR' \\
        --trust distributed --epsilon 2 --participation check-in --gamma 0.1 --rounds 400 \\
        --clip 1 --lr 0.3

DIR holds Fashion-MNIST's (or MNIST's) four IDX files, plain or .gz. One client has one image and
its label. Needs PyTorch 2, or 1.13 with functorch, and numpy. docs/EXPERIMENTS.md has what comes
out. With --validation 10000 the last 10,000 training images are no clients: the model is evaluated
on them, and the test images are not looked at.

Each client's gradient is its own: torch.func.vmap computes the gradient of one client's loss for
many clients at once. That works for any network whose layers treat examples one by one. Batch
normalisation does not: 'riffle gradients check' finds it out.

The protocol is docs/SPEC.md, section "Gradients from a program"; numpy_mlp.py beside this file
has its frames.
"""

import argparse
import ctypes
import os
import sys

import numpy as np
import torch
from torch import nn

from numpy_mlp import load_images, read_frame, write_frame

try:
    from torch.func import functional_call, grad, vmap
except ImportError:  # PyTorch 1.13
    from functorch import grad, make_functional, vmap

    functional_call = None


class Standardized(nn.Conv2d):
    """A convolution, a layer of one's own: each filter has mean 0 and a fixed length, so that
    the length of activations, and of gradients, depends less on the parameters."""

    def forward(self, x):
        w = self.weight
        w = w - w.mean(dim=(1, 2, 3), keepdim=True)
        w = w / (w.pow(2).sum(dim=(1, 2, 3), keepdim=True) + 1e-6).sqrt()
        return nn.functional.conv2d(x, w * self.gain, self.bias, self.stride, self.padding)

    def __init__(self, *args, gain=1.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.gain = gain


class Cells(nn.Module):
    """Divides the channels at each place of an image by their length, so that faint places count
    as much as bright ones."""

    def forward(self, x):
        return x / (x.pow(2).mean(dim=1, keepdim=True) + 0.05).sqrt()


def network():
    return nn.Sequential(
        Standardized(1, 16, 5, stride=2, padding=2),  # 28 -> 14
        nn.Tanh(),
        Cells(),
        Standardized(16, 32, 4, stride=2, padding=1),  # 14 -> 7
        nn.Tanh(),
        Cells(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


CHUNK = 128  # clients at a time


class Model:
    """The network as a function of one flat vector."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.net = network()
        self.shapes = [(name, tuple(p.shape)) for name, p in self.net.named_parameters()]
        self.sizes = [int(np.prod(shape)) for _, shape in self.shapes]
        self.dim = sum(self.sizes)
        self.initial = torch.cat([p.detach().ravel() for p in self.net.parameters()]).numpy().copy()
        if functional_call is None:
            call, _ = make_functional(self.net)
            self.call = lambda parts, x: call(parts, x)
        else:
            names = [name for name, _ in self.shapes]
            self.call = lambda parts, x: functional_call(self.net, dict(zip(names, parts)), (x,))
        self.rows = vmap(grad(self.loss), in_dims=(None, 0, 0))

    def parts(self, theta):
        return tuple(
            part.reshape(shape) for part, (_, shape) in zip(torch.split(theta, self.sizes), self.shapes)
        )

    def loss(self, theta, x, y):
        """The loss of one client, whose image is x."""
        return nn.functional.cross_entropy(self.call(self.parts(theta), x[None]), y[None])

    def gradients(self, theta, x, y):
        """The gradients of many clients, some at a time: what vmap stores of them fits the cache."""
        out = torch.empty(len(x), self.dim)
        for rows, some, labels in zip(out.split(CHUNK), x.split(CHUNK), y.split(CHUNK)):
            rows.copy_(self.rows(theta, some, labels))
        return out.numpy()

    def evaluate(self, theta, x, y):
        with torch.no_grad():
            parts = self.parts(theta)
            z = torch.cat([self.call(parts, some) for some in x.split(1000)])
        return {
            "loss": nn.functional.cross_entropy(z, y).item(),
            "accuracy": (z.argmax(1) == y).double().mean().item(),
            "examples": len(y),
            "baseline_accuracy": (torch.bincount(y).max() / len(y)).item(),
        }


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
                x, y, test_x, test_y = (torch.from_numpy(np.array(a)) for a in load_images(options.data))
                if options.validation:
                    test_x, test_y = x[-options.validation :], y[-options.validation :]
                    x, y = x[: -options.validation], y[: -options.validation]
                x, test_x = x.reshape(-1, 1, 28, 28), test_x.reshape(-1, 1, 28, 28)
                n = int(meta.get("clients", options.clients or len(x)))
                if meta["purpose"] == "simulate" and n > len(x):
                    raise ValueError("there are images for %d clients, asked for are %d" % (len(x), n))
                model = Model(int(meta["seed"]))
                answer = {"op": op, "version": "1", "dim": model.dim, "clients": n, "name": "torch network"}
                answer["parameters"] = " ".join("%s=%s" % (k, "x".join(map(str, s))) for k, s in model.shapes)
                write_frame(answers, answer, "initial", model.initial)
            else:
                theta = torch.from_numpy(np.array(tensors["theta"]))
                if op == "gradients":
                    ids = torch.from_numpy(tensors["ids"] % len(x))
                    write_frame(answers, {"op": op}, "gradients", model.gradients(theta, x[ids], y[ids]))
                elif op == "evaluate":
                    numbers = model.evaluate(theta, test_x, test_y)
                    write_frame(answers, {"op": op, **{k: repr(v) for k, v in numbers.items()}})
                else:
                    raise ValueError("operation %r is not known" % op)
        except (ValueError, OSError, RuntimeError) as e:
            write_frame(answers, {"op": "error", "message": str(e)})


def keep_memory():
    """Lets the C library keep freed memory for the next batch. By default it gives large blocks back
    to the system, which clears them each time: with glibc that took a third of the time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD
    mallopt(-1, 512 << 20)  # M_TRIM_THRESHOLD


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="folder with four IDX files")
    parser.add_argument("--clients", type=int, help="use the first images only")
    parser.add_argument("--validation", type=int, help="evaluate on so many training images, which are no clients")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (default 1: riffle uses the other cores)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    # Standard output is for answers. What else prints there goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    converse(sys.stdin.buffer, answers, options)


if __name__ == "__main__":
    main()
