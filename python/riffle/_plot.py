"""Pictures: by matplotlib if it is installed, else small SVG charts."""

import html
import math
from typing import Any, List, Optional, Sequence, Tuple


def pyplot() -> Any:
    """Return matplotlib.pyplot, or None if matplotlib is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return None
    return plt


class Picture:
    """A picture as SVG. A notebook shows it; ``save`` writes it to a file."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, file: str) -> None:
        """Write the SVG to a file."""
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.svg)

    def __repr__(self) -> str:
        return f"<picture: {len(self.svg)} bytes of SVG>"


class Chart:
    """Lines over the same x, with at most one level line.

    ``lines`` are (name, values); values that are not finite are left out.
    """

    def __init__(self, title: str, lines: Sequence[Tuple[str, Sequence[float]]], level: Optional[Tuple[str, float]] = None) -> None:
        self.title, self.lines, self.level = title, lines, level


COLOURS = ("#1f5fa8", "#c2571a", "#2e7d4f", "#7a4fa3")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 240, 56, 12, 28, 34


def charts(x_name: str, x: Sequence[float], panels: Sequence[Chart]) -> Picture:
    """Draw panels side by side.

    >>> "accuracy" in charts("round", [1, 2], [Chart("accuracy", [("test", [0.5, 0.75])])]).svg
    True
    """
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(panels)}" height="{HEIGHT}" font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    for at, panel in enumerate(panels):
        parts.append(f'<g transform="translate({at * WIDTH},0)">{_panel(x_name, x, panel)}</g>')
    return Picture("".join(parts) + "</svg>")


def _panel(x_name: str, x: Sequence[float], chart: Chart) -> str:
    values = [v for _, line in chart.lines for v in line if math.isfinite(v)]
    if chart.level is not None and math.isfinite(chart.level[1]):
        values.append(chart.level[1])
    if not values or not len(x):
        return f'<text x="{LEFT}" y="{TOP - 10}">{html.escape(chart.title)}: nothing to draw</text>'
    x_ticks, y_ticks = ticks(min(x), max(x)), ticks(min(values), max(values))
    x_low, x_high = min(min(x), x_ticks[0]), max(max(x), x_ticks[-1])
    y_low, y_high = min(min(values), y_ticks[0]), max(max(values), y_ticks[-1])

    def px(v: float) -> float:
        return LEFT + (v - x_low) / ((x_high - x_low) or 1) * (WIDTH - LEFT - RIGHT)

    def py(v: float) -> float:
        return HEIGHT - BOTTOM - (v - y_low) / ((y_high - y_low) or 1) * (HEIGHT - TOP - BOTTOM)

    out = [f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{html.escape(chart.title)}</text>']
    for t in y_ticks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(t):.1f}" y2="{py(t):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{py(t) + 4:.1f}" text-anchor="end">{t:.4g}</text>')
    for t in x_ticks if x_name != "round" else [t for t in x_ticks if t == int(t)]:
        out.append(f'<text x="{px(t):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{t:.4g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x_name)}</text>')
    if chart.level is not None and math.isfinite(chart.level[1]):
        y = py(chart.level[1])
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#777" stroke-dasharray="4 3"/>')
        out.append(f'<text x="{WIDTH - RIGHT}" y="{y - 4:.1f}" text-anchor="end" fill="#555">{html.escape(chart.level[0])}</text>')
    for at, (_, line) in enumerate(chart.lines):
        points = [(px(a), py(b)) for a, b in zip(x, line) if math.isfinite(b)]
        colour = COLOURS[at % len(COLOURS)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>')
        out.extend(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2" fill="{colour}"/>' for a, b in points if len(points) <= 40)
    return "".join(out)


def ticks(low: float, high: float) -> List[float]:
    """Return three to six round numbers that lie in or around low..high.

    >>> ticks(0.83, 0.97)
    [0.8, 0.85, 0.9, 0.95, 1.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / 4
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw * 0.9999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
