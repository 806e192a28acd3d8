#!/usr/bin/env python3
"""Golden values for reports whose density rises in steps (rising.md), of one round.

delta rows: for g = 1 + a/D all values of X = (1+wi) - g(1+wj) are multiples of 1/D, so the sum
of k of them has a law on a lattice. Its characteristic function at the N points of the dual
lattice gives it back exactly, but for what lies beyond 20 deviations. 60 digits; nothing is
smoothed, tilted or merged. Frequencies whose term is below e^-200 are left out. About ten minutes.

renyi rows: E_Q (P/Q)^m = E[A^m B^(1-m)]/k for integer m, with B^(1-m) as the integral of
t^(m-2) e^(-tB)/(m-2)! and the mixed moments E[A^m e^(-tB)] in closed form. 40 digits.
"""
import cmath
import math
from mpmath import mp, mpf

LAWS = [  # w and the tails, all multiples of 1/64, below 1/2
    (3, [mpf(8) / 64]),
    (2, [mpf(12) / 64, mpf(4) / 64]),
    (1, [mpf(24) / 64, mpf(12) / 64, mpf(5) / 64]),
    (11, [mpf(6) / 64]),
]


def rays(w, tails):
    """(i, j, mass): levels for the victim's two inputs on a report of the common part."""
    L = 1 / (1 + w * sum(tails))
    share = [t - (tails[n + 1] if n + 1 < len(tails) else 0) for n, t in enumerate(tails)]
    out = [(0, 0, L * (1 - 2 * tails[0]))]
    for n, s in enumerate(share):
        out += [(n + 1, 0, L * s), (0, n + 1, L * s)]
    return L, out


def delta(k, w, tails, a, D):
    L, rs = rays(w, tails)
    x = [(D * (1 + w * i) - (D + a) * (1 + w * j), m) for i, j, m in rs]
    variance = sum(m * v * v for v, m in x) - sum(m * v for v, m in x) ** 2
    mean = abs(k * sum(m * v for v, m in x))
    N = int(40 * math.sqrt(k * variance) + 2 * mean) + 200
    N += N % 2
    top, fast = N // 2 - 1, [(v, float(m)) for v, m in x]
    rest = float(1 - L)
    total = mpf(top) * (top + 1) / 2
    for f in range(1, N // 2 + 1):
        angle = 2 * math.pi * f / N
        phi = rest + sum(m * cmath.exp(1j * angle * v) for v, m in fast)
        if abs(phi) < 1e-9 or k * math.log(abs(phi)) < -200:
            continue
        th = 2 * mp.pi * f / N
        exact = (1 - L) + sum(m * mp.expj(th * v) for v, m in x)
        z = mp.expj(-th)
        c = z * (1 - (top + 1) * z ** top + top * z ** (top + 1)) / (1 - z) ** 2
        term = exact ** k * c
        total += term.real if 2 * f == N else 2 * term.real
    return total / N / D / k


def renyi(k, w, tails, m):
    L, rs = rays(w, tails)

    def moments(t):
        F = [1 - L + sum(p * mp.exp(-t * (1 + w * j)) for _, j, p in rs)]
        for n in range(1, m + 1):
            F.append(sum(p * (1 + w * i) ** n * mp.exp(-t * (1 + w * j)) for i, j, p in rs))
        if m == 2:
            return k * (k - 1) * F[1] ** 2 * F[0] ** (k - 2) + k * F[2] * F[0] ** (k - 1)
        return (k * (k - 1) * (k - 2) * F[1] ** 3 * F[0] ** (k - 3) + 3 * k * (k - 1) * F[1] * F[2] * F[0] ** (k - 2)
                + k * F[3] * F[0] ** (k - 1))

    points = [0] + [mpf(2) ** n for n in range(-2, 12)]
    points = [x / k for x in points] + [mpf(40)]
    points = sorted(set(p for p in points if p <= 40))
    total = mp.quad(lambda t: t ** (m - 2) * moments(t), points)
    return mp.log(total / k) / (m - 1)


def row(k, w, tails, name, a, D):
    mp.dps = 60
    value = delta(k, w, tails, a, D)
    if value > 1e-45:  # below, the terms that were left out count
        print("delta", k, w, name, a, D, mp.nstr(value, 20), sep="\t", flush=True)


def main():
    print("# delta\tk\tw\ttails\ta\tD (g = 1 + a/D)\tvalue   | renyi\tk\tw\ttails\torder\t-\tvalue; by rising.py")
    for w, tails in LAWS:
        name = " ".join(mp.nstr(t, 20) for t in tails)
        E = 1 + w * len(tails)
        for k in [2, 5, 40, 150, 700]:
            for a in sorted({round(16 * min((E - 1) * .9, share * 3 / math.sqrt(k))) for share in [0, .15, .5, 2, 6]}):
                row(k, w, tails, name, a, 16)
        for a in [0, 1, 5, 12]:
            row(60000, w, tails, name, a, 128)
        for k in [2, 30, 1000, 60000, 10 ** 9, 10 ** 12]:
            for m in [2, 3]:
                mp.dps = 50
                print("renyi", k, w, name, m, "-", mp.nstr(renyi(k, w, tails, m), 20), sep="\t", flush=True)


main()
