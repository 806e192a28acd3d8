#!/usr/bin/env python3
"""Golden composed eps of narrower pairs at setting A, by a route of its own.

One round: three-part pairs by listing (n', third count, first count) of every
outcome above 1e-22; binary randomized response by convolving all k datasets and
taking the supremum over datasets and thresholds at 1,240 values of eps.
Composition: FFT of the exponentially tilted law on 2^21 points, masses split
linearly; no bounds on its errors. Setting A's blanket comes out at .1521640
(true .1521640), so about six digits hold.
"""
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import binom

DATE = "2026-11-21"
K, EPS0, GAMMA, T, DELTA = 1000, 2.0, 1e-3, 10**5, 1e-8


def compose(loss, p, q):
    """loss > 0 with masses p and q; mirror images and the rest are implied."""
    at = np.concatenate([loss, -loss, [0.0]])
    mass = np.concatenate([p, q, [1 - p.sum() - q.sum()]])

    def cumulant(t):
        return np.log1p(np.sum(q * np.expm1((t + 1) * loss) * -np.expm1(-t * loss)))

    def renyi(x):
        t = np.exp(x)
        return (T * cumulant(t) - np.log(DELTA) - np.log(t + 1)) / t + np.log1p(-1 / (t + 1))

    t = np.exp(minimize_scalar(renyi, bounds=(0, 9), method="bounded").x)
    k = cumulant(t)
    w = mass * np.exp(t * at - k)
    mean = np.sum(w * at)
    sd = np.sqrt(T * (np.sum(w * at**2) - mean**2))
    n = 1 << 21
    h = 28 * sd / n
    grid = np.zeros(n)
    j = np.floor(at / h).astype(int)
    above = at / h - j
    np.add.at(grid, j % n, w * (1 - above))
    np.add.at(grid, (j + 1) % n, w * above)
    start = int(np.floor((T * mean - 14 * sd) / h))
    turn = np.exp(2j * np.pi * ((start * np.arange(n // 2 + 1)) % n) / n)
    out = np.fft.irfft(np.exp(T * np.log(np.fft.rfft(grid))) * turn, n)
    x = (start + np.arange(n)) * h

    def delta(eps):
        s = x > eps
        return np.sum(out[s] * np.exp(T * k - t * x[s]) * -np.expm1(eps - x[s]))

    lo, hi = 0.0, x[-1]
    for _ in range(60):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if delta(mid) > DELTA else (lo, mid)
    return hi


def sampled(loss, p, q):
    return np.log1p(GAMMA * np.expm1(loss)), (1 - GAMMA) * q + GAMMA * p, q


def cells(loss, p, q, n=200000):
    i = np.minimum((loss / (loss.max() * (1 + 1e-9)) * n).astype(int), n - 1)
    p, q = np.bincount(i, p, n), np.bincount(i, q, n)
    s = (q > 0) & (p > q)
    return np.log(p[s] / q[s]), p[s], q[s]


def three_part(a, c):
    e, n = np.exp(EPS0), K - 1
    w = max(0.0, 1 - a * (e + 1))
    parts = []

    def add(weight, pairs, third):
        first = np.arange(pairs // 2 + 1, pairs + 1)
        base = binom.pmf(first, pairs, 0.5) * weight
        v = (e - 1) / (e + 1) * (2 * first - pairs) / (pairs + 2 * c / (e + 1) * third)
        parts.append((np.log1p(2 * v / (1 - v)), base * (1 + v), base * (1 - v)))

    for i in range(n + 1):
        wi = binom.pmf(i, n, 2 * a)
        if wi < 1e-22:
            continue
        j = np.arange(n - i + 1)
        wj = wi * binom.pmf(j, n - i, (w / c) / (1 - 2 * a))
        for jj in j[wj > 1e-22]:
            add(wj[jj] * a * (e + 1), i + 1, jj)
            if w > 0:
                add(wj[jj] * w, i, jj + 1)
    loss, p, q = (np.concatenate(x) for x in zip(*parts))
    return compose(*cells(*sampled(loss, p, q)))


def binary():
    e = np.exp(EPS0)
    hi, lo = e / (e + 1), 1 / (e + 1)
    eps = np.concatenate([np.linspace(0, 1.2, 1200), np.linspace(1.2, 2, 40)[1:]])
    g = np.exp(eps)
    h = np.zeros_like(g)
    for j in range(K):
        s = np.convolve(binom.pmf(np.arange(j + 1), j, hi), binom.pmf(np.arange(K - j), K - 1 - j, lo))
        p = np.cumsum(np.convolve(s, [lo, hi])[::-1])[::-1]
        q = np.cumsum(np.convolve(s, [hi, lo])[::-1])[::-1]
        for m in range(len(g)):
            h[m] = max(h[m], np.max(p - g[m] * q))
    h[-1] = 0
    slope = np.diff(h) / np.diff(g)
    q = np.maximum(np.append(slope[1:], 0) - slope, 0)
    keep = q > 0
    loss, p, q = sampled(eps[1:], q * g[1:], q)
    return compose(loss[keep], p[keep], q[keep])


def main():
    e = np.exp(EPS0)
    print(f"# pairs.py, numpy/scipy double, about six digits, {DATE}")
    print("# setting A; class\tsymbols\ttv\tmethod\teps")
    for cls, symbols, tv, method, a, c in [
        ("krr", 3, 0, "krr-pld", 1 / (e + 2), 1.0),
        ("krr", 20, 0, "krr-pld", 1 / (e + 19), 1.0),
        ("generic", 0, 0.06, "tv-pld", 0.06, e),
        ("laplace", 0, 0, "laplace-pld", (1 - np.exp(-1)) / (e - 1), e),
    ]:
        print(f"{cls}\t{symbols}\t{tv}\t{method}\t{three_part(a, c):.6f}")
    print(f"rr2\t0\t0\trr2-pld\t{binary():.6f}")


main()
