"""Questions about a table's rows: riffle measure."""

import html
import json
import os
import shlex
import tempfile
import warnings
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _binary
from ._epsilon import digits, frame
from .errors import RiffleWarning, UsageError

Number = Union[int, float]


class Interval(NamedTuple):
    """A number as measured, with the interval that holds it with 95 %, and the wider one that holds all numbers of the answer together."""

    value: float
    low95: float
    high95: float
    joint_low95: float
    joint_high95: float

    @classmethod
    def _of(cls, document: Mapping[str, Any], value: str = "value") -> "Interval":
        return cls(*(float(document[field]) for field in (value, *cls._fields[1:])))

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        return f"{self.value:.6g} ({self.low95:.6g} .. {self.high95:.6g})"


class Measured:
    """What riffle answers to a question about rows.

    ``numbers`` holds each number with its intervals, by name: a bin's edges or category, a rank, a
    column, or ``mean``, ``count`` and others. ``epsilon`` and ``delta`` are what the answer cost,
    ``spent`` what all questions of its ledger cost (None without one), and ``document`` the whole of
    ``riffle measure --json``.
    """

    def __init__(self, document: Dict[str, Any], flags: Sequence[str] = ()) -> None:
        self.document = document
        self.measure: str = document["measure"]
        self.epsilon: float = float(document["epsilon"])
        self.delta: float = float(document["delta"])
        ledger = document.get("ledger")
        self.spent: Optional[float] = float(ledger["epsilon"]) if ledger else None
        self.numbers: Dict[Any, Interval] = dict(_numbers(document))
        self._flags = list(flags)

    def __getitem__(self, name: Any) -> Interval:
        if name not in self.numbers:
            raise KeyError(f"no number {name!r} among {', '.join(map(repr, self.numbers))}")
        return self.numbers[name]

    def __float__(self) -> float:
        """The mean, variance or count that was asked for."""
        if self.measure not in self.numbers:
            raise UsageError(f"a {self.measure} has {len(self.numbers)} numbers, not one")
        return self.numbers[self.measure].value

    @property
    def command(self) -> str:
        """The command that prints the same."""
        return shlex.join(["riffle", "measure", self.measure, *self._flags])

    def frame(self) -> Any:
        """Return the numbers as a pandas DataFrame, a row for each."""
        return frame([{"name": name, **number._asdict()} for name, number in self.numbers.items()])

    def __repr__(self) -> str:
        column = self.document.get("column")
        what = f"{self.measure} of {column}" if column else self.measure
        return f"<{what}: {len(self.numbers)} numbers of {self.document['reports']} reports, epsilon {digits(self.epsilon)} at delta = {self.delta:g}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(str(name))}</td><td>{n.value:.6g}</td><td>{n.low95:.6g} … {n.high95:.6g}</td><td>{n.joint_low95:.6g} … {n.joint_high95:.6g}</td></tr>"
            for name, n in self.numbers.items()
        )
        return f"<p><b>{html.escape(repr(self))}</b></p><table><tr><th></th><th>value</th><th>95 % interval</th><th>all together</th></tr>{rows}</table>"


def _numbers(document: Mapping[str, Any]) -> List[Tuple[Any, Interval]]:
    """List the numbers of an answer by their names."""
    out: List[Tuple[Any, Interval]] = [(name, Interval._of(document[name])) for name in ("count", "share", "mean", "variance") if name in document]
    for bin in document.get("bins", []):
        name = bin["category"] if "category" in bin else (bin["lower"], bin["upper"])
        out.append((name, Interval._of(bin, "count")))
    out += [(q["rank"], Interval._of(q)) for q in document.get("quantiles", [])]
    out += [(c.get("column", "intercept"), Interval._of(c)) for c in document.get("coefficients", [])]
    out += [(item.get("item", item.get("bytes")), Interval._of(item, "count")) for item in document.get("items", [])]
    return out


def measure(
    kind: str,
    data: Any,
    column: Optional[str] = None,
    *,
    range: Union[str, Tuple[Number, Number], None] = None,
    bins: Union[str, Sequence[Number], None] = None,
    categories: Union[str, Sequence[str], None] = None,
    where: Union[str, Sequence[str], None] = None,
    epsilon: Optional[Number] = None,
    delta: Optional[Number] = None,
    trust: Optional[str] = None,
    ledger: Union[str, "os.PathLike[str]", None] = None,
    budget: Optional[Number] = None,
    seed: Optional[int] = None,
    **flags: Any,
) -> Measured:
    """Answer a question about a table's rows in a simulation, as ``riffle measure`` does.

    ``kind`` is ``count``, ``mean``, ``variance``, ``histogram``, ``quantiles``, ``heavy-hitters`` or ``linear-regression``,
    ``data`` a CSV file or a pandas DataFrame whose rows are the clients'. What is public is given, never
    read off the rows: ``range=(0, 120)`` of a column, ``bins=[0, 18, 65, 120]`` (edges) or
    ``"0..100:20"``, ``categories=["berlin", "paris", "*"]``, ``features={"age": (0, 120)}``.
    ``where=["age>=40", "city=berlin"]`` names conditions, ``ledger`` a file in which questions share the
    ``budget``: a question that does not fit raises ``Refused``. Every other flag of ``riffle measure KIND``
    is an argument too, with _ for -. Mistakes raise ``UsageError``.

    >>> import riffle
    >>> with open("people.csv", "w") as file:
    ...     _ = file.write("age,city\\n" + "".join(f"{20 + i % 50},{'rome' if i % 4 else 'oslo'}\\n" for i in __import__("builtins").range(2000)))
    >>> cities = riffle.measure("histogram", "people.csv", "city", categories=["oslo", "*"])
    >>> abs(cities["oslo"].value - 500) < 50 and cities["*"].low95 < cities["*"].value < cities["*"].high95
    True
    >>> riffle.measure("mean", "people.csv", "age")
    Traceback (most recent call last):
        ...
    riffle.errors.UsageError: mean needs range, as 0..120: it is public and never read off the data, which would reveal them
    """
    _check(kind, data, column, where)
    kind = kind.replace("_", "-")
    if "data" not in _binary.flags(f"measure {kind}"):
        _binary.call(["measure", kind])  # riffle says that there is no such kind
    if range is not None and not isinstance(range, str):
        try:
            low, high = range
        except (TypeError, ValueError):
            raise UsageError(f"range = {range!r} must be two numbers, as (0, 120)") from None
        range = f"{_binary.text_of(low)}..{_binary.text_of(high)}"
    given: Dict[str, Any] = dict(data=data, column=column, range=range, bins=bins, categories=categories, where=where, epsilon=epsilon, delta=delta,
                                 trust=trust, ledger=ledger, budget=budget, seed=seed)
    given = {name: value for name, value in given.items() if value is not None}
    if categories is not None and not isinstance(categories, str):
        given["categories"] = "|".join(_escaped(_binary.text_of(text), "|") for text in categories)
    if where is not None and not isinstance(where, str):
        given["where"] = ",".join(_escaped(text, ",") for text in where)
    with tempfile.TemporaryDirectory(prefix="riffle-") as folder:
        if hasattr(data, "to_csv"):
            given["data"] = os.path.join(folder, "table.csv")
            data.to_csv(given["data"], index=False)
        args = _binary.arguments(f"measure {kind}", {**given, **flags})
        out, warned = _binary.call(["measure", kind, *args, "--json"])
    for text in warned:
        warnings.warn(text, RiffleWarning, stacklevel=2)
    return Measured(json.loads(out), args)


def _check(kind: Any, data: Any, column: Any, where: Any) -> None:
    """Refuse what is neither a table nor a question about one, in words of Python."""
    if not isinstance(kind, str):
        raise UsageError(f"kind = {kind!r:.60} must be a text, such as 'mean'")
    if not isinstance(data, (str, os.PathLike)) and not hasattr(data, "to_csv"):
        raise UsageError(f"data is a {type(data).__name__}: give the path of a CSV file or a pandas DataFrame; pandas.DataFrame(data) makes one of a dictionary of columns")
    if column is not None and not isinstance(column, str):
        raise UsageError(f"column = {column!r:.60} must be the name of a column")
    if isinstance(where, Mapping):
        raise UsageError("where is a dictionary: give conditions, as ['age>=40', 'city=berlin']")


def _escaped(text: str, mark: str) -> str:
    """Return text with backslashes before a mark and before backslashes.

    >>> _escaped("Paris, TX", ",")
    'Paris\\\\, TX'
    """
    return text.replace("\\", "\\\\").replace(mark, "\\" + mark)

