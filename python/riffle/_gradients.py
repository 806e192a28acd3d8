"""Gradients for riffle from a Python function: the program's side of docs/SPEC.md, "Gradients from a program"."""

import inspect
import math
import os
import re
import socket
import stat
import struct
import sys
import threading
import traceback
from contextlib import contextmanager
from typing import IO, Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _safetensors
from .errors import Error, ProtocolError, UsageError

VERSION = "1"
MAX_DIM = 10_000_000
# The longest request: a header, theta and the ids of 256 rows.
MAX_REQUEST = 8 + (1 << 20) + 4 * MAX_DIM + 8 * 256

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
Initial = Union["np.ndarray[Any, Any]", Arrays]


class Program:
    """A function that computes gradients, and what riffle has to know of it. Made by ``riffle.gradients``.

    Calling it calls the function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        initial: Union[Initial, Callable[[int], Initial], None] = None,
        dim: Optional[int] = None,
        clients: Optional[int] = None,
        update: str = "gradient",
        name: str = "",
    ) -> None:
        if (initial is None) == (dim is None):
            raise UsageError("gradients: give either initial (an array, or arrays by name) or dim, the number of parameters")
        if update not in ("gradient", "delta"):
            raise UsageError(f"gradients: update = {update!r} must be 'gradient' or 'delta'")
        self.function, self.clients, self.update, self.name = function, clients, update, name
        self._initial, self._dim = initial, dim
        self._evaluate: Optional[Callable[..., Mapping[str, float]]] = None
        self._takes_round = len(_positional(function)) > 2
        self._lock = threading.Lock()  # functions need not be made for several threads

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def evaluate(self, function: Callable[..., Mapping[str, float]]) -> Callable[..., Mapping[str, float]]:
        """Take a function of theta as the evaluation. It returns numbers by name, ``loss`` among them.

        riffle knows ``accuracy``, ``baseline_accuracy``, ``baseline_loss`` and ``examples``, and shows others
        as they are. Use it as a decorator.
        """
        self._evaluate = function
        return function

    def start(self, seed: int = 1) -> "Model":
        """Return names, shapes and initial values of the parameters for a seed."""
        if self._initial is None:
            return Model(None, None, int(self._dim or 0))
        return Model.of(self._initial(seed) if callable(self._initial) else self._initial)

    def rows(self, model: "Model", theta: "np.ndarray[Any, Any]", ids: "np.ndarray[Any, Any]", round_: int) -> "np.ndarray[Any, Any]":
        """Return the gradients of the clients ids as float32, one a row."""
        args = (model.unpack(theta), ids) + ((round_,) if self._takes_round else ())
        with self._lock:
            found = self.function(*args)
        return model.pack(found, len(ids))

    def numbers(self, model: "Model", theta: "np.ndarray[Any, Any]") -> Dict[str, str]:
        """Return the evaluation's numbers as texts."""
        if self._evaluate is None:
            raise UsageError("this program has no evaluation (@program.evaluate)")
        with self._lock:
            found = self._evaluate(model.unpack(theta))
        if "loss" not in found:
            raise UsageError(f"the evaluation must return a loss; it returned {', '.join(found) or 'nothing'}")
        out = {}
        for name, value in found.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name) or name == "op":
                raise UsageError(f"the evaluation's number {name!r} must be named by a-z, 0-9 and _")
            number = float(value)
            out[name] = repr(number) if math.isfinite(number) else str(number)
        return out


class Model:
    """Names and shapes of parameters in the order of theta. Without names theta is one vector."""

    def __init__(self, shapes: Optional[Dict[str, Tuple[int, ...]]], initial: Optional["np.ndarray[Any, Any]"], dim: int) -> None:
        if not 1 <= dim <= MAX_DIM:
            raise UsageError(f"gradients: dim = {dim} must be between 1 and {MAX_DIM}")
        for name in shapes or ():
            if not re.fullmatch(r"[!-<>-~]{1,200}", name):
                raise UsageError(f"gradients: a parameter's name {name!r} must be of 1 to 200 printable ASCII characters without spaces and =")
        if initial is not None and not np.isfinite(initial).all():
            raise UsageError("gradients: initial parameters must be finite")
        self.shapes, self.initial, self.dim = shapes, initial, dim

    @classmethod
    def of(cls, initial: Initial) -> "Model":
        """Return the model that begins with an array, or with arrays by name."""
        if isinstance(initial, Mapping):
            arrays = {name: np.asarray(a) for name, a in initial.items()}
            if not arrays:
                raise UsageError("gradients: initial has no arrays")
            flat = np.concatenate([a.astype(np.float32).ravel() for a in arrays.values()])
            return cls({name: a.shape for name, a in arrays.items()}, flat, flat.size)
        flat = np.asarray(initial, dtype=np.float32).ravel()
        return cls(None, flat, flat.size)

    def words(self) -> str:
        """Return names and shapes as the protocol writes them.

        >>> Model.of({"weight": np.zeros((8, 1, 5)), "scale": np.float32(1)}).words()
        'weight=8x1x5 scale='
        """
        return " ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in (self.shapes or {}).items())

    def unpack(self, theta: "np.ndarray[Any, Any]") -> Any:
        """Return theta as the function takes it: arrays by name, or the vector."""
        if self.shapes is None:
            return theta
        out, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            out[name] = theta[at : at + size].reshape(shape)
            at += size
        return out

    def pack(self, found: Any, rows: int) -> "np.ndarray[Any, Any]":
        """Return what the function returned as one float32 row for each client."""
        with np.errstate(over="ignore"):  # becomes infinite, and counts as 0
            if isinstance(found, Mapping):
                shapes = self.shapes or {}
                if set(found) != set(shapes):
                    raise UsageError(f"the gradients have the names {', '.join(found)}, the parameters {', '.join(shapes) or 'none'}")
                parts = []
                for name, shape in shapes.items():
                    part = np.asarray(found[name], dtype=np.float32)
                    if part.shape != (rows, *shape):
                        raise UsageError(f"the gradients of {name} have shape {part.shape}, want {(rows, *shape)}: one for each client")
                    parts.append(part.reshape(rows, -1))
                return np.concatenate(parts, axis=1)
            array = np.asarray(found, dtype=np.float32)
        if array.shape != (rows, self.dim):
            raise UsageError(f"the gradients have shape {array.shape}, want {(rows, self.dim)}: a row for each client")
        return array


def _positional(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def gradients(
    initial: Union[Initial, Callable[[int], Initial], None] = None,
    *,
    dim: Optional[int] = None,
    clients: Optional[int] = None,
    update: str = "gradient",
    name: str = "",
) -> Callable[[Callable[..., Any]], Program]:
    """Make a function the program of ``riffle train --gradients``. Use it as a decorator.

    The function gets the parameters theta and the numbers ``ids`` of clients (int64), and if it
    takes a third argument the round. It returns the gradient of each client's own loss, a row for
    each. riffle clips, randomizes and sums them. A row may depend on theta and on its client's
    data only; what it takes from another client is not protected.

    ``initial`` are the parameters to begin with: arrays by name (theta and gradients may then be
    dictionaries too), one vector, or a function of the seed that returns them. Or give ``dim``, and
    begin with zeros. ``clients`` is how many clients the program has the data of. With
    ``update="delta"`` a row is the client's model after local steps, minus theta. ``name`` is what the
    model is called.

    >>> import numpy as np, riffle
    >>> x, y = np.eye(4, dtype=np.float32), np.array([0.0, 1, 1, 0], np.float32)
    >>> @riffle.gradients(initial={"weight": np.zeros(4), "bias": np.zeros(())}, clients=4)
    ... def program(theta, ids):                # least squares
    ...     off = x[ids] @ theta["weight"] + theta["bias"] - y[ids]
    ...     return {"weight": off[:, None] * x[ids], "bias": off}
    >>> @program.evaluate
    ... def evaluate(theta):
    ...     return {"loss": float(np.mean((x @ theta["weight"] + theta["bias"] - y) ** 2) / 2)}
    >>> program({"weight": np.zeros(4), "bias": np.zeros(())}, np.array([1]))["bias"]
    array([-1.])
    """

    def wrap(function: Callable[..., Any]) -> Program:
        return Program(function, initial, dim, clients, update, name or getattr(function, "__name__", ""))

    return wrap


def serve(program: Union[Program, Callable[..., Any]], address: Optional[str] = None, **options: Any) -> None:
    """Answer riffle until it ends: over standard input and output, or over a Unix socket.

    ``program`` is a function with the decorator ``riffle.gradients``, or a plain function with that
    decorator's arguments as ``options``. Without ``address`` riffle starts this program
    (``riffle train --gradients 'python3 grad.py'``); whatever else is printed goes to standard
    error. With ``unix:PATH`` it listens there until Ctrl-C (``--gradients unix:PATH``).
    """
    if not isinstance(program, Program):
        program = gradients(**options)(program)
    elif options:
        raise UsageError(f"serve: {', '.join(options)} belongs to the decorator riffle.gradients")
    if address is None:
        try:
            _standard(program)
        except KeyboardInterrupt:
            sys.exit(130)
        return
    path = socket_path(address)
    with listen(program, path):
        print(f"listens on unix:{path}", file=sys.stderr, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


def socket_path(address: str) -> str:
    """Return the path of an address.

    >>> socket_path("unix:/run/grad")
    '/run/grad'
    """
    kind, colon, path = address.partition(":")
    if kind != "unix" or not path or path[0] in "@\0":  # of an abstract socket, which any user may take
        raise UsageError(f"{address!r} must be unix:PATH")
    return path


def _standard(program: Program) -> None:
    """Serve one session over standard input and output, which belong to it alone."""
    sys.stdout.flush()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with requests, answers:
        session(program, requests, answers)


@contextmanager
def listen(program: Program, path: str) -> Iterator[None]:
    """Serve sessions on a Unix socket at path, by threads, while the context lasts."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(listener, path)
        listener.listen(128)
    except OSError as err:
        listener.close()
        raise Error(f"unix:{path}: {err.strerror or err}") from None
    thread = threading.Thread(target=_accept, args=(program, listener), daemon=True)
    thread.start()
    try:
        yield
    finally:
        try:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        except OSError:
            pass
        listener.close()
        os.unlink(path)
        thread.join(timeout=5)


def _bind(listener: socket.socket, path: str) -> None:
    """Bind to path for this user only. A socket there on which nobody listens is taken over; another file is not."""
    if _is_socket(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)  # left by a program that was killed
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _accept(program: Program, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_connected, args=(program, connection), daemon=True).start()


def _connected(program: Program, connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as requests, connection.makefile("wb") as answers:
        try:
            session(program, requests, answers)
        except (Error, OSError) as err:
            print(f"gradients: {err}", file=sys.stderr, flush=True)


def session(program: Program, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests in their order until riffle closes."""
    model: Optional[Model] = None
    while True:
        document = _read(requests)
        if document is None:
            return
        tensors, metadata = _safetensors.loads(document)
        op = metadata.get("op", "")
        if op == "close":
            return
        try:
            if op == "open":
                model, answer, says = _open(program, metadata)
            elif model is None:
                raise ProtocolError(f"{op or 'a request without op'} before open")
            elif op == "gradients":
                rows = program.rows(model, tensors["theta"], tensors["ids"], int(metadata.get("round", "0")))
                answer, says = {"gradients": rows}, {}
            elif op == "evaluate":
                answer, says = {}, program.numbers(model, tensors["theta"])
            else:
                raise ProtocolError(f"unknown op {op!r}")
            says = {"op": op, **says}
        except Exception as err:  # of the user's function: riffle shows it and ends
            if not isinstance(err, Error):
                traceback.print_exc()
            kind = "" if isinstance(err, Error) else type(err).__name__ + ": "
            answer, says = {}, {"op": "error", "message": _line(f"{kind}{err}")}
        frame = _safetensors.dumps(answer, says)
        try:
            answers.write(struct.pack("<Q", len(frame)))
            answers.write(frame)
            answers.flush()
        except BrokenPipeError:
            return


def _line(text: str) -> str:
    """Return text as one line of at most 1000 characters.

    >>> _line("no\\n  data")
    'no data'
    """
    return " ".join(text.split())[:1000]


def _read(requests: IO[bytes]) -> Optional[bytes]:
    """Return the next request, or None at the end."""
    head = _exactly(requests, 8)
    if not head:
        return None
    (length,) = struct.unpack("<Q", head.ljust(8, b"\0"))
    if len(head) < 8 or length > MAX_REQUEST:
        raise ProtocolError(f"a request of {length} bytes, at most {MAX_REQUEST} are read")
    document = _exactly(requests, length)
    if len(document) < length:
        raise ProtocolError(f"a request ended after {len(document)} of {length} bytes")
    return document


def _exactly(source: IO[bytes], length: int) -> bytes:
    """Read length bytes, or fewer at the end."""
    parts, left = [], length
    while left:
        part = source.read(min(left, 1 << 20))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _open(program: Program, metadata: Mapping[str, str]) -> Tuple[Model, Dict[str, "np.ndarray[Any, Any]"], Dict[str, str]]:
    """Answer open: return the session's model, and the answer's tensors and metadata."""
    if metadata.get("version") != VERSION:
        raise ProtocolError(f"version {metadata.get('version')} of the protocol, this program speaks {VERSION}")
    purpose = metadata.get("purpose", "")
    if purpose not in ("simulate", "client", "evaluate"):
        raise ProtocolError(f"this program does not serve the purpose {purpose!r}")
    says = {"version": VERSION}
    if purpose == "evaluate" and program._evaluate is None:
        raise UsageError("this program has no evaluation (@program.evaluate)")
    if purpose == "simulate":
        if program.clients is None:
            raise UsageError("this program does not say how many clients it has the data of (clients=)")
        asked = int(metadata.get("clients", program.clients))
        if not 1 <= asked <= program.clients:
            raise UsageError(f"this program has the data of {program.clients} clients, not of {asked}")
        says["clients"] = str(asked)
    model = program.start(int(metadata.get("seed", "1")))
    says["dim"] = str(model.dim)
    if program.update != "gradient":
        says["update"] = program.update
    name = "".join(c for c in program.name if c.isprintable())[:64]
    if name:
        says["name"] = name
    if model.shapes is not None:
        says["parameters"] = model.words()
    return model, {} if model.initial is None else {"initial": model.initial}, says
