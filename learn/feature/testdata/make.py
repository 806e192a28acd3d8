"""Writes hog.json: images and their HOG features, computed from the
definition in plain loops and double precision (Python 3, standard library).

python3 learn/feature/testdata/make.py
"""

import base64
import json
import math
import pathlib
import random


def strokes(rng, width, height, n):
    """A few blurred line segments, as bytes."""
    level = [[0.0] * width for _ in range(height)]
    for _ in range(n):
        x0, y0 = rng.uniform(2, width - 3), rng.uniform(2, height - 3)
        x1, y1 = rng.uniform(2, width - 3), rng.uniform(2, height - 3)
        for s in range(101):
            px, py = x0 + (x1 - x0) * s / 100, y0 + (y1 - y0) * s / 100
            for y in range(height):
                for x in range(width):
                    d = (x - px) ** 2 + (y - py) ** 2
                    level[y][x] = max(level[y][x], 255 * math.exp(-d / 1.5))
    return [[int(v) if v >= 10 else 0 for v in r] for r in level]


def upright(image, spread):
    height, width = len(image), len(image[0])
    pixels = [(x, y, image[y][x]) for y in range(height) for x in range(width)]
    mass = sum(m for _, _, m in pixels)
    if mass == 0:
        return [[0.0] * width for _ in range(height)]
    cx = sum(m * x for x, _, m in pixels) / mass
    cy = sum(m * y for _, y, m in pixels) / mass
    xy = sum(m * (x - cx) * (y - cy) for x, y, m in pixels) / mass
    yy = sum(m * (y - cy) ** 2 for _, y, m in pixels) / mass
    a = min(2, max(-2, xy / yy)) if yy > 1e-6 else 0.0
    k = 1.0
    if spread:
        rest = sum(m * (x - cx - a * (y - cy)) ** 2 for x, y, m in pixels) / mass
        k = min(2, max(0.5, math.sqrt(rest) / spread))

    def at(y, x):
        return image[y][x] if 0 <= y < height and 0 <= x < width else 0

    out = []
    for y in range(height):
        v = y - (height - 1) / 2
        line = []
        for x in range(width):
            fx = cx + k * (x - (width - 1) / 2) + a * v
            fy = cy + v
            ix, iy = math.floor(fx), math.floor(fy)
            line.append(sum(
                (1 - abs(fx - i)) * (1 - abs(fy - j)) * at(j, i)
                for i in (ix, ix + 1) for j in (iy, iy + 1)))
        out.append(line)
    return out


def hog(image, c):
    height, width = len(image), len(image[0])
    if c["Upright"]:
        image = upright(image, c["Spread"])

    def at(y, x):
        return image[y][x] / 255 if 0 <= y < height and 0 <= x < width else 0.0

    cells, n = c["Cells"], c["Orientations"]
    turn = 2 * math.pi if c["Signed"] else math.pi
    out = []
    for i in range(cells):
        for j in range(cells):
            mid_y = (height - 1) / 2 + (i - (cells - 1) / 2) * c["Spacing"]
            mid_x = (width - 1) / 2 + (j - (cells - 1) / 2) * c["Spacing"]
            h = [0.0] * n
            for y in range(height):
                for x in range(width):
                    w = max(0, 1 - abs(y - mid_y) / c["Radius"]) * max(0, 1 - abs(x - mid_x) / c["Radius"])
                    gx = (at(y, x + 1) - at(y, x - 1)) / 2
                    gy = (at(y + 1, x) - at(y - 1, x)) / 2
                    size = math.hypot(gx, gy)
                    if w == 0 or size == 0:
                        continue
                    bin = (math.atan2(gy, gx) % turn) / turn * n
                    for o in range(n):
                        gap = min(abs(bin - o), n - abs(bin - o))
                        h[o] += w * size * max(0, 1 - gap)
            out.append(h)
    if c["Damping"]:
        sizes = [math.sqrt(sum(v * v for v in h)) for h in out]
        floor = c["Damping"] * sum(sizes) / len(sizes)
        out = [[v / math.hypot(s, floor) for v in h] if s else h for h, s in zip(out, sizes)]
    flat = [v for h in out for v in h]
    if c["Root"]:
        flat = [math.sqrt(v) for v in flat]
    if c["Centre"]:
        mean = sum(flat) / len(flat)
        flat = [v - mean for v in flat]
    size = math.sqrt(sum(v * v for v in flat))
    return [v * c["Norm"] / size for v in flat] if size else flat


DIGITS = dict(Width=28, Height=28, Upright=True, Spread=4.2, Cells=4, Spacing=5.0, Radius=5.0,
              Orientations=12, Signed=True, Damping=0.0, Root=True, Centre=True, Norm=3.0)
CLASSIC = dict(Width=28, Height=28, Upright=False, Spread=0.0, Cells=7, Spacing=4.0, Radius=4.0,
               Orientations=9, Signed=False, Damping=0.5, Root=False, Centre=False, Norm=1.0)
OBLONG = dict(Width=17, Height=12, Upright=True, Spread=0.0, Cells=3, Spacing=3.5, Radius=4.25,
              Orientations=6, Signed=True, Damping=0.1, Root=True, Centre=False, Norm=10.0)

rng = random.Random(1)
cases = []
for config in (DIGITS, CLASSIC, OBLONG):
    for n in (1, 2, 4):
        image = strokes(rng, config["Width"], config["Height"], n)
        cases.append({
            "config": config,
            "image": base64.b64encode(bytes(v for r in image for v in r)).decode(),
            "features": [round(v, 9) for v in hog(image, config)],
        })
text = ",\n".join(json.dumps(c) for c in cases)
pathlib.Path(__file__).with_name("hog.json").write_text("[\n" + text + "\n]\n")
