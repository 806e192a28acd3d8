"""A run directory, as arrays."""

import html
import json
import math
import os
from html.parser import HTMLParser
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np

from . import _files, _safetensors
from ._epsilon import digits, frame
from ._plot import Chart, charts, pyplot
from .errors import UsageError


class Run:
    """A run that ``riffle train`` left in a directory, finished or not.

    ``directory`` is where it is, ``config`` its configuration (texts by the names of flags),
    ``summary`` the figures of ``riffle train --json`` (empty if it did not end), ``notes`` what
    riffle said on the way, if this process ran it.

    The directory may be a stranger's: nothing of it is run, and whatever is wrong with its files raises
    ``riffle.Error``. Its summary must agree with its metrics.

    >>> import riffle
    >>> run = riffle.train(rounds=2, eval_every=1, out="two")
    >>> run.metrics["round"]
    array([1., 2.])
    >>> sorted(run.model)
    ['bias', 'weight']
    >>> run.model["weight"].shape
    (192, 10)
    """

    def __init__(self, directory: Union[str, "os.PathLike[str]"], notes: Tuple[str, ...] = ()) -> None:
        self.directory = os.fspath(directory)
        self.notes = list(notes)
        settings = self._text("config.yaml")
        if settings is None:
            raise UsageError(f"{self.directory}: no run there (config.yaml is missing)")
        self.config: Dict[str, str] = _settings(settings, self._file("config.yaml"))
        self.summary: Dict[str, Any] = {}
        summary = self._text("summary.json")
        if summary is not None:
            self.summary = _object(summary, self._file("summary.json"))
            self._compare()

    def _file(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _text(self, name: str) -> Optional[str]:
        """Return a file's text; None if there is no such file."""
        try:
            return _files.read(self._file(name), MOST_TEXT).decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as err:
            raise UsageError(f"{self._file(name)}: is no text: {err}") from None

    def _compare(self) -> None:
        """Refuse a summary that says something else than the metrics, which riffle wrote before it."""
        metrics = self.metrics
        said = {"rounds": "round", "epsilon": "epsilon"}
        if "gradients" not in self.config:  # a program may answer differently when it is asked again
            said.update(test_accuracy="accuracy", test_loss="loss", validation_accuracy="accuracy", validation_loss="loss")
        for key, name in said.items():
            if key not in self.summary and key not in ("rounds", "epsilon"):
                continue
            summed = _number(self.summary.get(key), self._file("summary.json"), key)
            last = metrics[name][-1] if len(metrics.get(name, ())) else math.nan
            if not (math.isclose(summed, last, rel_tol=1e-6) or summed != summed and last != last and name not in ("round", "epsilon")):
                raise UsageError(f"{self.directory}: summary.json has {key} = {summed:g}, the last line of metrics.jsonl {name} = {last:g}: one of them is not this run's")
        if _number(self.summary.get("delta"), self._file("summary.json"), "delta") != self.delta:
            raise UsageError(f"{self.directory}: summary.json has delta = {self.summary.get('delta')!r:.40}, config.yaml {self.delta:g}")

    @property
    def finished(self) -> bool:
        """Whether the run came to its end. If not, ``riffle.train(resume=run)`` goes on."""
        return bool(self.summary)

    @property
    def metrics(self) -> Dict[str, "np.ndarray[Any, Any]"]:
        """The evaluations: an array for each quantity, such as ``round``, ``epsilon``, ``accuracy`` and ``loss``, of tables and programs also ``auc`` and others. What is missing is NaN."""
        file, rows = self._file("metrics.jsonl"), []
        lines = (self._text("metrics.jsonl") or "").rstrip("\n").split("\n")
        for number, line in enumerate(lines, 1):
            where = f"{file}: line {number}"
            try:
                one = _object(line, where)
            except UsageError:
                if number == len(lines):  # it is being written, or was cut off
                    break
                raise
            deeper = one.get("metrics") or {}  # figures such as auc
            if not isinstance(deeper, dict):
                raise UsageError(f"{where}: metrics is no object")
            row = {name: _number(value, where, name) for name, value in {**deeper, **one}.items() if _numeric(value)}
            if row.get("epsilon", 0) < 0:
                raise UsageError(f"{where}: epsilon = {row['epsilon']:g} is below 0")
            rows.append(row)
        names = list(dict.fromkeys(name for row in rows for name in row))
        if len(names) > MOST_NUMBERS:
            raise UsageError(f"{file}: {len(names)} different quantities, a run has at most {MOST_NUMBERS}")
        return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}

    def frame(self) -> Any:
        """Return the evaluations as a pandas DataFrame, a row for each."""
        return frame(self.metrics)

    @property
    def model(self) -> Dict[str, "np.ndarray[Any, Any]"]:
        """The model's tensors by name."""
        return self._model()[0]

    @property
    def provenance(self) -> Dict[str, str]:
        """What the model's file says of itself: the kind of model, its classes, ε, δ and the bound."""
        return self._model()[1]

    def _model(self) -> Tuple[Dict[str, "np.ndarray[Any, Any]"], Dict[str, str]]:
        try:
            return _safetensors.load(self._file("model.safetensors"))
        except FileNotFoundError:
            raise UsageError(f"{self.directory}: no model yet: it is written at the end of a run") from None

    @property
    def report(self) -> str:
        """The path of the page that the run left."""
        return self._file("report.html")

    def _last(self, name: str, key: str) -> float:
        if key in self.summary:
            return _number(self.summary[key], self._file("summary.json"), key)
        values = self.metrics.get(name, np.array([]))
        return float(values[-1]) if len(values) else float("nan")

    @property
    def epsilon(self) -> float:
        """The proved ε (nats) that the run has cost; infinite without privacy."""
        return float("inf") if self.config.get("trust") == "none" else self._last("epsilon", "epsilon")

    @property
    def delta(self) -> float:
        """The δ at which ``epsilon`` holds."""
        text = self.config.get("delta", "nan")
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{self._file('config.yaml')}: delta = {text!r:.40} is no number") from None

    @property
    def accuracy(self) -> float:
        """The last accuracy on examples that trained nothing, a share; NaN where numbers are predicted."""
        return self._last("accuracy", "test_accuracy")

    @property
    def loss(self) -> float:
        """The last loss on examples that trained nothing."""
        return self._last("loss", "test_loss")

    def __repr__(self) -> str:
        what = f"accuracy {100 * self.accuracy:.2f} %" if self.accuracy == self.accuracy else f"loss {self.loss:.4f}"
        cost = "no privacy" if self.epsilon == float("inf") else f"epsilon {digits(self.epsilon)} at delta = {self.delta:g}"
        return f"<run {self.directory}: {what}, {cost}{'' if self.finished else ', not finished'}>"

    def _repr_html_(self) -> str:
        head = _Head()
        try:
            head.feed(self._text("report.html") or "")
        except AssertionError:  # of the parser, at what is not HTML
            head = _Head()
        title = head.texts.get("h1") or self.directory
        parts = [f"<h3>{html.escape(title)}</h3>"]
        parts += [f"<p>{html.escape(head.texts[name])}</p>" for name in ("summary", "lead") if head.texts.get(name)]
        cells = "".join(f"<td style='text-align:left;vertical-align:top;padding-right:1.5em'>{html.escape(a)}<br/><b>{html.escape(b)}</b><br/><small>{html.escape(c)}</small></td>" for a, b, c in head.tiles)
        parts.append(f"<table><tr>{cells}</tr></table>" if cells else f"<p>{html.escape(repr(self))}</p>")
        parts.append(f"<p><small>{html.escape(self.report)}</small></p>")
        return "".join(parts)

    def plot(self, axes: Any = None) -> Any:
        """Draw how the run went: accuracy (or loss) with the baseline, and ε, over the rounds.

        Returns matplotlib's two axes, or without matplotlib a picture that a notebook shows and
        whose ``save`` writes it to a file.
        """
        m = self.metrics
        if not len(m.get("round", ())):
            raise UsageError(f"{self.directory}: no evaluation yet, so there is nothing to draw")
        what = "accuracy" if "accuracy" in m and np.isfinite(m["accuracy"]).any() else "loss"
        if what not in m:
            raise UsageError(f"{self.directory}: no accuracy and no loss, so there is nothing to draw")
        baseline = m.get(f"baseline_{what}")
        level = float(baseline[-1]) if baseline is not None else float("nan")
        x = m["round"]
        plt = pyplot()
        if plt is None:
            if axes is not None:
                raise UsageError("axes need matplotlib, which is not installed")
            panels = [Chart(what, [(what, m[what].tolist())], ("baseline", level)), Chart("ε", [("ε", m["epsilon"].tolist())] if "epsilon" in m else [])]
            return charts("round", list(x), panels[: 2 if "epsilon" in m else 1])
        if axes is None:
            axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1]
        axes[0].plot(x, m[what], marker=".")
        if np.isfinite(level):
            axes[0].axhline(level, color="grey", linestyle="--", label="baseline")
            axes[0].legend()
        axes[0].set_ylabel(what)
        if "epsilon" in m:
            axes[1].plot(x, m["epsilon"], marker=".")
        axes[1].set_ylabel("ε")
        for ax in axes:
            ax.set_xlabel("round")
            ax.locator_params(axis="x", integer=True)
        return axes


# The largest text that is read, in bytes, and the most quantities that a run is measured by.
MOST_TEXT = 256 << 20
MOST_NUMBERS = 256


def _numeric(value: Any) -> bool:
    return value is None or isinstance(value, (int, float)) and not isinstance(value, bool) or value in ("inf", "-inf")


def _number(value: Any, where: str, name: str) -> float:
    """Return a number as riffle writes it: null is NaN, and infinities are texts."""
    if not _numeric(value):
        raise UsageError(f"{where}: {name} = {value!r:.40} is no number")
    return math.nan if value is None else float(value)


def _object(text: str, where: str) -> Dict[str, Any]:
    """Read a JSON object."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no number of JSON")

    try:
        out = json.loads(text, parse_int=_safetensors.whole, parse_constant=constant)
    except (ValueError, RecursionError) as err:
        raise UsageError(f"{where}: is no JSON: {err}") from None
    if not isinstance(out, dict):
        raise UsageError(f"{where}: is no JSON object")
    return out


def _settings(text: str, where: str = "config.yaml") -> Dict[str, str]:
    """Read the plain lines ``key: value`` that riffle writes; a quoted value is JSON."""
    out = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon or line.startswith(("#", " ")):
            continue
        value = value.strip()
        try:
            out[key] = json.loads(value) if value.startswith('"') else value.strip("'")
        except ValueError as err:
            raise UsageError(f"{where}: {key!r:.40}: {err}") from None
    return out


class _Head(HTMLParser):
    """Collects the head of a report: its title, the run in a sentence, the promise and the tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: Dict[str, str] = {}
        self.tiles: List[Tuple[str, str, str]] = []
        self._into: Optional[str] = None
        self._end = ""
        self._tile: Optional[Dict[str, str]] = None

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if "tile" in classes and tag == "div":
            self._tile = {}
        known = [c for c in ("summary", "lead", "value", "detail") if c in classes and tag == "p"]
        name = tag if tag == "h1" else known[0] if known else None
        if self._tile is not None and tag == "h2":
            name = "name"
        if name is not None and self._into is None:
            self._into, self._end = name, tag

    def handle_endtag(self, tag: str) -> None:
        if self._into is not None and tag == self._end:
            self._into = None
        if tag == "div" and self._tile is not None:
            self.tiles.append((self._tile.get("name", ""), self._tile.get("value", ""), self._tile.get("detail", "")))
            self._tile = None

    def handle_data(self, data: str) -> None:
        if self._into is None:
            return
        if self._into in ("name", "value", "detail"):
            if self._tile is not None:
                self._tile[self._into] = self._tile.get(self._into, "") + data
        elif self._into in self.texts and not self.texts[self._into].endswith("\0"):
            self.texts[self._into] += data
        else:
            self.texts[self._into] = data
