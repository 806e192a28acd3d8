#!/usr/bin/env python3
"""Golden composed eps for rounds of Gaussian sums: golden.py's Bromwich route,
with the losses of one round on Gauss-Legendre nodes (32 panels of 12 points up
to 16 deviations; no splitting, no rounding of losses, every k by itself)."""
import math
import sys
import numpy as np
from golden import binom_log, convert, solve, rdp_eps

DATE = "2026-11-21"


class Round:
    """Sampled or check-in; seen apart if apart."""

    def __init__(self, sigma, n, k=None, gamma=None, apart=False):
        x0, w0 = np.polynomial.legendre.leggauss(12)
        if gamma is None:
            ks, wk = np.array([float(k)]), np.array([1.0])
        else:
            m, s = n * gamma, math.sqrt(n * gamma * (1 - gamma))
            ks = np.arange(max(1, int(m - 10 * s)), min(n, int(m + 11 * s) + 12) + 1).astype(float)
            wk = np.exp(binom_log(n, gamma, ks))
        Ls, qs = [], []
        for kk, w in zip(ks, wk):
            mu = 2 / (sigma * math.sqrt(1 if apart else kk))
            edges = np.linspace(0, 16 + mu / 2, 33)
            h = (edges[1:] - edges[:-1]) / 2
            x = ((edges[1:] + edges[:-1]) / 2)[:, None] + h[:, None] * x0[None, :]
            q = w * h[:, None] * w0[None, :] * np.exp(-(x + mu / 2) ** 2 / 2) / math.sqrt(2 * math.pi)
            Ls.append(np.log1p(kk / n * np.expm1(mu * x)).ravel())
            qs.append(q.ravel())
        self.L, self.q = np.concatenate(Ls), np.concatenate(qs)

    def K(self, s):
        out = np.empty(len(s), complex)
        up = np.exp(self.L)
        for i, z in enumerate(s):
            out[i] = np.sum(self.q * (np.expm1(z * self.L) + up * np.expm1(-z * self.L)))
        return np.log1p(out)


cases = [
    ("G", "distributed", "check-in", 1, 600000, 1e-3, 100000, 1e-8),
    ("g1", "distributed", "sampled", 1, 600000, 600, 100000, 1e-8),
    ("g2", "distributed", "sampled", 2, 1000, 30, 500, 1e-6),
    ("g3", "distributed", "sampled", .5, 2000, 50, 30, 1e-10),
    ("g4", "distributed", "check-in", 3, 400, .05, 200, 1e-5),
    ("g5", "shuffle", "sampled", 5, 1000000, 10000, 1000, 1e-6),
    ("g6", "distributed", "sampled", 10, 100000, 50000, 1000, 1e-12),
]
print(f"# gaussian.py, numpy/scipy double, Bromwich inversion to 1e-6 relative, {DATE}")
print("# name\ttrust\tparticipation\tsigma\tn\tk or gamma\tT\tdelta\teps")
for name, trust, part, sigma, n, k, T, dl in cases:
    kw = {"k": k} if part == "sampled" else {"gamma": k}
    r = Round(sigma, n, apart=trust == "shuffle", **kw)
    guess = rdp_eps(r, T, dl)
    print(f"{name}\t{trust}\t{part}\t{sigma}\t{n}\t{k}\t{T}\t{dl}\t{solve(r, T, dl, guess):.9g}", flush=True)
