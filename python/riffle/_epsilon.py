"""What a protocol costs, and its inverse: riffle eps and riffle plan."""

import decimal
import html
import json
import os
import shlex
import tempfile
import warnings
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _binary
from ._plot import Picture, pyplot
from .errors import Error, RiffleWarning, UsageError

Number = Union[int, float]


class Bound(NamedTuple):
    """One bound on the privacy loss.

    ``eps`` (nats) and ``delta`` hold together; both are None where the bound has no value, and
    ``note`` says why. ``kind`` is ``upper``, ``lower`` or ``approximate``; only an upper bound
    whose status is ``proved`` promises anything. ``order`` is the Rényi order, if there is one.
    """

    method: str
    kind: str
    status: str
    eps: Optional[float]
    delta: Optional[float]
    source: str
    note: str = ""
    order: Optional[float] = None

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> "Bound":
        given = {field: document[field] for field in cls._fields if field in document}
        return cls(**{field: real(value) if field in ("eps", "delta", "order") else value for field, value in given.items()})

    def __repr__(self) -> str:
        if self.eps is None:
            return f"<{self.method}: {self.note}>"
        sign = {"upper": "<=", "lower": ">="}.get(self.kind, "about")
        figure = digits(self.eps, up=self.kind != "lower")
        return f"<{self.method}: epsilon {sign} {figure} at delta = {self.delta:g}, {self.status}>"


def real(value: Any) -> Optional[float]:
    """Return a number of riffle's JSON, where 1 may be a whole number and "inf" is infinite, as a float; None stays None.

    >>> real(1), real("inf"), real(None)
    (1.0, inf, None)
    """
    return None if value is None else float(value)


def digits(value: float, up: bool = True) -> str:
    """Return value with four digits, rounded up, or down.

    >>> digits(0.82515), digits(0.82515, up=False)
    ('0.8252', '0.8251')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    rounded = decimal.Context(prec=4, rounding=rounding).create_decimal(decimal.Decimal(value))
    return f"{rounded.normalize():f}" if 1e-4 <= abs(value) < 1e6 else f"{rounded.normalize():e}"


class Epsilon:
    """What riffle answers to a question about privacy loss.

    ``upper`` is the tightest proved upper bound, ``lower`` the largest proved lower bound (each
    None if there is none), ``bounds`` lists all of them in riffle's order, ``query`` is the
    question as riffle understood it and ``document`` the whole of ``riffle eps --json``.
    ``float(answer)`` is the proved upper ε, or for a question about δ the proved upper δ.

    >>> import riffle
    >>> answer = riffle.epsilon("all", eps0=2.5, n=60000, rounds=160, delta=1e-5)
    >>> answer
    epsilon <= 0.8252 at delta = 1e-05 (blanket-pld, proved)
    >>> answer.lower.eps <= answer.upper.eps == float(answer) < answer["clones-pld"].eps
    True
    """

    def __init__(self, document: Dict[str, Any], flags: Sequence[str] = ()) -> None:
        self.document = document
        self.query: Dict[str, Any] = document["query"]
        self.bounds: List[Bound] = [Bound._of(b) for b in document["bounds"]]
        self.upper: Optional[Bound] = Bound._of(document["upper"]) if document.get("upper") else None
        self.lower: Optional[Bound] = Bound._of(document["lower"]) if document.get("lower") else None
        self._flags = list(flags)

    @property
    def asks_delta(self) -> bool:
        """Whether δ is asked for, at a given ε."""
        return "eps" in self.query and "delta" not in self.query

    def __float__(self) -> float:
        value = None if self.upper is None else self.upper.delta if self.asks_delta else self.upper.eps
        if value is None:
            raise Error("no proved bound")
        return value

    def __getitem__(self, method: str) -> Bound:
        for bound in self.bounds:
            if bound.method == method:
                return bound
        raise KeyError(f"no bound {method!r} among {', '.join(b.method for b in self.bounds)}")

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def command(self) -> str:
        """The command that prints the same."""
        return shlex.join(["riffle", "eps", *self._flags])

    def __repr__(self) -> str:
        if self.upper is None or self.upper.eps is None or self.upper.delta is None:
            return "no proved bound"
        return f"epsilon <= {digits(self.upper.eps)} at delta = {self.upper.delta:g} ({self.upper.method}, {self.upper.status})"

    def _repr_html_(self) -> str:
        rows = [b for b in self.bounds if b.eps is not None]
        cells = "".join(
            f"<tr><td>{html.escape(b.method)}</td><td>{digits(b.eps or 0.0, up=b.kind != 'lower')}</td><td style='white-space:nowrap'>{b.delta:g}</td>"
            f"<td>{html.escape(b.kind)}</td><td style='text-align:left'>{html.escape(b.source)}</td></tr>"
            for b in rows
        )
        head = "<tr><th>bound</th><th>ε</th><th>δ</th><th>kind</th><th>source</th></tr>"
        return f"<p><b>{html.escape(repr(self))}</b></p><table>{head}{cells}</table>"

    def frame(self) -> Any:
        """Return all bounds as a pandas DataFrame, a row for each."""
        return frame([b._asdict() for b in self.bounds])

    def curve(self, over: str) -> List["Epsilon"]:
        """Answer the same question for many values of one quantity.

        ``over`` is as in ``riffle eps --curve``: ``rounds=``, ``n=``, ``k=``, ``gamma=``, ``eps0=`` or
        ``delta=``, then values with commas or ``FIRST..LAST:COUNT``.

        >>> import riffle
        >>> answer = riffle.epsilon("all", eps0=2, n=1000, delta=1e-5, bounds="best")
        >>> [point.query["rounds"] for point in answer.curve("rounds=1,10,100")]
        [1, 10, 100]
        """
        name, kept = self._without(over)
        out, _ = _binary.call(["eps", *kept, f"--curve={over}", "--json"])
        points = json.loads(out)["curve"]
        return [Epsilon(p, [*kept, f"--{name}={_binary.text_of(p['query'][name])}"]) for p in points]

    def _without(self, over: str) -> Tuple[str, List[str]]:
        """Return the name of the quantity that a curve is over, and the flags without it."""
        name = over.partition("=")[0]
        return name, [f for f in self._flags if not f.startswith(f"--{name}=")]

    def plot(self, over: Optional[str] = None, bounds: Sequence[str] = ("upper", "lower", "blanket-rdp", "clones-pld"), ax: Any = None) -> Any:
        """Draw bounds over one quantity, by default over the rounds from 1 to those asked for.

        ``over`` is that of ``curve``. ``bounds`` are ``upper``, ``lower`` and names of bounds. Returns
        matplotlib's axes, or without matplotlib riffle's own picture, which a notebook shows and
        whose ``save`` writes it to a file.
        """
        over = over or f"rounds=1..{max(2, int(self.query['rounds']))}:25"
        plt = pyplot()
        if plt is None:
            if ax is not None:
                raise UsageError("ax needs matplotlib, which is not installed")
            return self._picture(over, bounds)
        name, points = over.partition("=")[0], self.curve(over)
        if ax is None:
            ax = plt.subplots()[1]
        for label in bounds:
            pairs = [(float(p.query[name]), p._value(label)) for p in points]
            drawn = [(x, y) for x, y in pairs if y is not None]
            if drawn:
                ax.plot([x for x, _ in drawn], [y for _, y in drawn], label=label, color="black" if label == "upper" else None, linestyle="--" if label == "lower" else "-")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(name)
        ax.set_ylabel("δ" if self.asks_delta else "ε")
        ax.legend()
        return ax

    def _value(self, label: str) -> Optional[float]:
        bound = {"upper": self.upper, "lower": self.lower}[label] if label in ("upper", "lower") else self[label]
        return None if bound is None else bound.delta if self.asks_delta else bound.eps

    def _picture(self, over: str, bounds: Sequence[str]) -> Picture:
        kept = self._without(over)[1]
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "eps.svg")
            _binary.call(["eps", *kept, f"--curve={over}", f"--plot={file}", f"--plot-bounds={','.join(bounds)}"])
            with open(file, encoding="utf-8") as svg:
                return Picture(svg.read())


def frame(rows: Any) -> Any:
    """Return a pandas DataFrame of rows or of columns."""
    try:
        import pandas
    except ImportError:
        raise Error("a DataFrame needs pandas, which is not installed") from None
    return pandas.DataFrame(rows)


def epsilon(
    participation: str = "all",
    eps0: Optional[Number] = None,
    n: Optional[Number] = None,
    rounds: Optional[Number] = None,
    delta: Optional[Number] = None,
    *,
    k: Optional[Number] = None,
    gamma: Optional[Number] = None,
    eps: Optional[Number] = None,
    randomizer: Optional[str] = None,
    trust: Optional[str] = None,
    bounds: Optional[str] = None,
    **flags: Any,
) -> Epsilon:
    """Bound the privacy loss of a protocol, as ``riffle eps`` does.

    Each of ``n`` clients sends one ``eps0``-locally private report a round (``participation``:
    ``all``, ``sampled`` with ``k`` reports, ``check-in`` with chance ``gamma``, or ``once``), for
    ``rounds`` rounds (1 if not given). Give ``delta`` to bound ε, or ``eps`` to bound δ. ε is in
    nats, for replacing one client's data. ``bounds`` is ``all``, ``best`` or one bound's name.
    Every other flag of ``riffle eps`` is an argument too, with _ for -.

    >>> import riffle
    >>> riffle.epsilon("sampled", eps0=2, n=1e6, k=1000, rounds=1e5, delta=1e-8, bounds="best")
    epsilon <= 0.1523 at delta = 1e-08 (blanket-pld, proved)

    Errors are riffle's own, and an unknown argument is refused:

    >>> riffle.epsilon("sampled", eps0=2, n=1000, delta=1e-5)
    Traceback (most recent call last):
        ...
    riffle.errors.UsageError: k = 0 must lie between 1 and n = 1000
    >>> riffle.epsilon(eps0=2, n=1000, delta=1e-5, round=7)
    Traceback (most recent call last):
        ...
    riffle.errors.UnknownArgument: riffle eps has no flag --round; did you mean rounds (--rounds: rounds that are announced, void ones too (default 1))?
    """
    given = dict(participation=participation, eps0=eps0, n=n, rounds=rounds, delta=delta, k=k, gamma=gamma, eps=eps, randomizer=randomizer, trust=trust, bounds=bounds)
    args = _binary.arguments("eps", {**given, **flags})
    out, warned = _binary.call(["eps", *args, "--json"])
    for text in warned:
        warnings.warn(text, RiffleWarning, stacklevel=2)
    return Epsilon(json.loads(out), args)


class Plan:
    """What ``riffle plan`` answers.

    ``value`` is the quantity that was solved for, ``solution`` all that was found (a vector sum's
    design too), ``check`` what the solution costs, ``document`` the whole of ``riffle plan --json``.
    """

    def __init__(self, document: Dict[str, Any], solve: str) -> None:
        self.document = document
        self.solve = solve
        self.solution: Dict[str, Any] = document["solution"]
        self.check = Epsilon(document["check"])

    @property
    def value(self) -> float:
        """The quantity that was solved for: a whole number for ``k``, ``rounds`` and ``noise-bits``."""
        value = self.solution[self.solve]
        return value if self.solve in ("k", "rounds", "noise-bits") else float(value)  # type: ignore[no-any-return]

    @property
    def design(self) -> Dict[str, Any]:
        """The design of a vector sum: grid, noise, modulus and sizes; else empty."""
        return self.solution.get("design", {})

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"{self.solve} = {self.value:.6g}: {self.check!r}"


def plan(
    target_eps: Number,
    delta: Number,
    n: Number,
    solve: str = "eps0",
    participation: str = "all",
    *,
    rounds: Optional[Number] = None,
    eps0: Optional[Number] = None,
    k: Optional[Number] = None,
    gamma: Optional[Number] = None,
    randomizer: Optional[str] = None,
    trust: Optional[str] = None,
    **flags: Any,
) -> Plan:
    """Choose a protocol for a target ε, as ``riffle plan`` does: the inverse of ``epsilon``.

    ``solve`` is what to solve for: the largest ``eps0``, ``k``, ``gamma`` or ``rounds``, or the smallest
    ``sigma``, ``noise-bits`` or ``mu``, with which the proved bound stays at or below ``target_eps``.

    >>> import riffle
    >>> p = riffle.plan(target_eps=1, delta=1e-5, n=60000, rounds=50)
    >>> p
    eps0 = 3.82844: epsilon <= 0.9999 at delta = 1e-05 (blanket-pld, proved)
    >>> float(riffle.epsilon("all", eps0=p.value, n=60000, rounds=50, delta=1e-5)) <= 1
    True
    """
    given = dict(target_eps=target_eps, delta=delta, n=n, solve=solve, participation=participation, rounds=rounds, eps0=eps0, k=k, gamma=gamma, randomizer=randomizer, trust=trust)
    args = _binary.arguments("plan", {**given, **flags})
    out, warned = _binary.call(["plan", *args, "--json"])
    for text in warned:
        warnings.warn(text, RiffleWarning, stacklevel=2)
    return Plan(json.loads(out), solve)
