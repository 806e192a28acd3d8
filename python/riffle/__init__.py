"""riffle from Python: what private learning costs, and training it.

The functions run riffle's program, which the environment variable RIFFLE names or PATH has.

>>> import riffle
>>> riffle.epsilon("all", eps0=2.5, n=60000, rounds=160, delta=1e-5)
epsilon <= 0.8252 at delta = 1e-05 (blanket-pld, proved)
"""

import importlib
from typing import Any

from ._binary import version
from ._epsilon import Bound, Epsilon, Plan, epsilon, plan
from ._gradients import Program, gradients, serve
from ._measure import Interval, Measured, measure
from ._plot import Picture
from ._run import Run
from ._train import train
from .errors import Error, Interrupted, ProtocolError, Refused, RiffleWarning, UnknownArgument, UsageError

__version__ = "0.1.0"

__all__ = [
    "Bound", "Epsilon", "Error", "Interrupted", "Interval", "Measured", "Picture", "Plan", "Program", "ProtocolError", "Refused", "RiffleWarning", "Run",
    "UnknownArgument", "UsageError", "epsilon", "gradients", "measure", "plan", "serve", "train", "version",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # imported when it is used, because it imports PyTorch
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'riffle' has no attribute {name!r}")
