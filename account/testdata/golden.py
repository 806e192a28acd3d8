#!/usr/bin/env python3
"""Golden composed eps for T rounds, by a route without any loss grid.

delta(eps) = 1/(2 pi i) * integral over Re s = c > 1 of
             exp(T K(s) - (s-1) eps) / (s (s-1)) ds,   K(s) = log E_Q exp(s L),
with K summed over every outcome of one round at complex s (Bromwich inversion
of the hockey-stick; c is the saddle point). No FFT, no rounding of losses, no
wrap-around. The error is quadrature (trapezoid, step halved until two values
agree to 1e-7) plus double rounding. T = 1 is a direct sum.
RDP rows minimise over real orders (integer ones for G21).
"""
import math
import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln, logsumexp

DATE = "2026-11-21"


def binom_log(n, p, x):
    return (gammaln(n + 1.0) - gammaln(x + 1.0) - gammaln(n - x + 1.0)
            + x * math.log(p) + (n - x) * math.log1p(-p))


def shuffle_atoms(k, eps0, kind, sig=11.0, every=False):
    """Outcomes with p > q, and q's mass at p = q is implied by the rest.

    For large k the sums over C use an odd stride, a trapezoid rule on a smooth
    bump of at least 8 points per standard deviation: its error is below 1e-15.
    """
    E = math.exp(eps0)
    r = math.exp(-eps0) if kind == "clones" else 2 / (E + 1)
    n = k - 1
    s = math.sqrt(n * r * (1 - r))
    lo, hi = max(0, int(n * r - sig * s - 40)), min(n, int(n * r + sig * s + 40))
    step = max(1, int(s / 8))
    step = 1 if every else step + 1 - step % 2
    c = np.arange(lo, hi + 1, step).astype(float)
    wc = np.exp(binom_log(n, r, c))
    wc /= wc.sum()
    m = c + 1
    half = int(min(m[-1] / 2 + 1, sig * math.sqrt(m[-1]) / 2 + 40))
    d = np.arange(0, half + 1)[None, :]
    a = np.floor(m / 2)[:, None] + 1 + d  # a > m/2 only: p > q
    mf = m[:, None]
    ok = a <= mf
    af = np.where(ok, a, 0)
    la = gammaln(mf + 1) - gammaln(af + 1) - gammaln(mf - af + 1) - mf * math.log(2)
    base = wc[:, None] * np.exp(la) * 2 / (mf * (E + 1))
    p, q = base * (E * af + (mf - af)), base * (af + E * (mf - af))
    keep = ok & (p > 1e-38)
    return p[keep], q[keep]


def losses(k, g, eps0, kind):
    """One round, inclusion g: masses under Q' of losses +L and -L."""
    p, q = shuffle_atoms(k, eps0, kind)
    L = np.log1p(g * (p / q - 1))
    return L, q, q * np.exp(L)


def moment(L, q, s):
    """E_Q[e^{sL}] - 1 for an array of complex s, linear part removed."""
    out = np.empty(len(s), complex)
    up = np.exp(L)
    for i, z in enumerate(s):
        out[i] = np.sum(q * (np.expm1(z * L) + up * np.expm1(-z * L)))
    return out


class Fixed:
    def __init__(self, k, n, eps0, kind):
        self.L, self.q, _ = losses(k, k / n, eps0, kind)

    def K(self, s):
        return np.log1p(moment(self.L, self.q, s))


class CheckIn:
    """k ~ Bin(n, gamma) public. The moment given k is analytic in k: it is
    interpolated (barycentric) through integer nodes near Chebyshev points."""

    def __init__(self, n, gamma, eps0, kind, nodes=11):
        mu, s = n * gamma, math.sqrt(n * gamma * (1 - gamma))
        lo, hi = max(1, int(mu - 9 * s)), min(n, int(mu + 9 * s) + 1)
        self.ks = np.arange(lo, hi + 1).astype(float)
        self.w = np.exp(binom_log(n, gamma, self.ks))
        if len(self.ks) <= 60:
            x = self.ks
        else:
            t = np.cos(math.pi * (np.arange(nodes) + 0.5) / nodes)
            x = np.unique(np.round((lo + hi) / 2 + (hi - lo) / 2 * t))
        self.x = x
        self.parts = [losses(int(k), k / n, eps0, kind) for k in x]
        W = np.array([1 / np.prod((xi - x[x != xi]) / (hi - lo) * 4) for xi in x])
        D = self.ks[:, None] - x[None, :]
        hit = D == 0
        R = W[None, :] / np.where(hit, 1, D)
        R = R / R.sum(1, keepdims=True)
        rows = hit.any(1)
        R[rows] = hit[rows].astype(float)
        self.coef = self.w @ R if len(self.ks) > 60 else self.w

    def K(self, s):
        m = np.array([moment(L, q, s) for L, q, _ in self.parts])
        return np.log1p(self.coef @ m)


def delta(rnd, T, eps, cache={}):
    """Bromwich integral along the saddle."""
    Kr = lambda c: float(rnd.K(np.array([c + 0j]))[0].real)
    f = lambda c: T * Kr(c) - (c - 1) * eps - math.log(c * (c - 1))
    # exp(c L) must not overflow; the integral is the same for every c > 1.
    top = math.log(min(8000, 500 / np.abs(getattr(rnd, "L", np.array([1e-9]))).max()))
    c = minimize_scalar(lambda u: f(1 + math.exp(u)), bounds=(-3, top), method="bounded", options={"xatol": 1e-3}).x
    c = 1 + math.exp(c)
    if f(c) < -45:  # far below every delta asked for: only its sign is used
        return math.exp(f(c))
    h2 = 1e-3 * c
    curv = (f(c + h2) - 2 * f(c) + f(c - h2)) / h2 ** 2
    w = 1 / math.sqrt(max(curv, 1e-300))
    prev, h = None, w / 2
    for _ in range(8):
        t, total, i0 = 0.0, 0.0, 0
        block = 24
        while True:
            ts = h * (i0 + np.arange(block))
            s = c + 1j * ts
            v = np.exp(T * rnd.K(s) - (s - 1) * eps - np.log(s * (s - 1)) - f(c)).real
            if i0 == 0:
                v[0] /= 2
            total += v.sum()
            i0 += block
            if np.abs(v).max() < 1e-11 or i0 > 200000:
                break
        val = total * h / math.pi
        if prev is not None and abs(val / prev - 1) < 1e-7:
            return math.exp(f(c)) * val
        prev, h = val, h / 2
    raise ArithmeticError("no convergence")


def solve(rnd, T, dl, guess):
    g = lambda e: math.log(max(delta(rnd, T, e), 1e-300)) - math.log(dl)
    lo = guess * 0.3
    while g(lo) < 0:
        lo /= 2
    return brentq(g, lo, guess * 1.15, xtol=1e-7 * guess, rtol=1e-7)


def convert(R, lam, dl):
    return R + math.log1p(-1 / lam) - (math.log(dl) + math.log(lam)) / (lam - 1)


def rdp_eps(rnd, T, dl):
    def f(u):
        lam = 1 + math.exp(u)
        return convert(T * float(rnd.K(np.array([lam + 0j]))[0].real) / (lam - 1), lam, dl)
    r = minimize_scalar(f, bounds=(-2, 9), method="bounded", options={"xatol": 1e-5})
    return float(r.fun)


def girgis_eps(k, n, eps0, T, dl):
    E, g = math.exp(eps0), k / n
    kb = math.floor((k - 1) / (2 * E)) + 1
    lu = math.log(g * (E * E - 1) / E)

    def R(lam):
        j = np.arange(3, lam + 1)
        lb = lambda j: gammaln(lam + 1.0) - gammaln(j + 1.0) - gammaln(lam - j + 1.0)
        t = [0.0, math.log(4) + lb(2.0) + 2 * math.log(g * (E - 1)) - math.log(kb * E)]
        if len(j):
            jf = j.astype(float)
            t += list(lb(jf) + jf * math.log(g) + np.log(jf) + gammaln(jf / 2)
                      + jf / 2 * math.log(2 * (E * E - 1) ** 2 / (kb * E * E)))
        ja = np.arange(2, lam + 1).astype(float)  # Upsilon, summed: no cancellation
        t += list(lb(ja) + ja * lu - (k - 1) / (8 * E))
        return logsumexp(t) / (lam - 1)
    best, lam = math.inf, 2
    while lam < 6000:
        v = convert(T * R(lam), lam, dl)
        if v > 3 * best:
            break
        best = min(best, v)
        lam += 1 if lam < 400 else lam // 100
    return best


class Concrete:
    """Exact law of one sampled mechanism, every outcome; not a bound.

    rr3: 3-RR, neighbours on symbols 0 and 1, everybody else on symbol 2.
    rr2: binary RR, neighbours 0 and 1, everybody else on 0 (order = which
    neighbour is the numerator).
    """

    def __init__(self, k, n, eps0, which, order=0, sig=11.0):
        E, g = math.exp(eps0), k / n
        if which == "rr3":
            r = 2 / (E + 2)
            s = math.sqrt(k * r * (1 - r))
            c = np.arange(max(0, int(k * r - sig * s)), min(k, int(k * r + sig * s)) + 1).astype(float)[:, None]
            half = sig * math.sqrt(c.max()) / 2 + 20
            d = np.arange(-half // 1, half // 1 + 1)[None, :]
            a = np.floor(c / 2) + d
            ok = (a >= 0) & (a <= c)
            a = np.where(ok, a, 0)
            base = np.exp(binom_log(k, r, c) + gammaln(c + 1) - gammaln(a + 1) - gammaln(c - a + 1) - c * math.log(2))
            up, down = (E * a + (c - a) + (k - c) / E) / k, (a + E * (c - a) + (k - c) / E) / k
            base, up, down = base[ok], up[ok], down[ok]
        else:
            r = 1 / (E + 1)
            m = np.arange(0, k + 1).astype(float)
            base = np.exp(binom_log(k, r, m))
            keep = base > 1e-40
            base, m = base[keep], m[keep]
            up, down = (m * E + (k - m) / E) / k, np.ones(len(m))
            if order:
                up, down = down, up
        P, Q = 1 + g * (up - 1), 1 + g * (down - 1)
        self.q, self.L = base * Q, np.log1p(g * (up - down) / Q)

    def K(self, s):
        # E_Q e^{sL} - 1 with the exact identities E_Q 1 = E_Q e^L = 1 removed.
        return np.log1p(np.array([np.sum(self.q * (np.expm1(z * self.L) - z * np.expm1(self.L))) for z in s]))


# name, participation, n, k or gamma, eps0, T, delta
SETTINGS = [
    ("A", "sampled", 10 ** 6, 10 ** 3, 2.0, 10 ** 5, 1e-8),
    ("M1", "sampled", 60000, 10 ** 4, 1.5, 1200, 1e-5),
    ("CI", "check-in", 10 ** 7, 1e-3, 1.0, 10 ** 5, 1e-7),
    ("a1", "all", 1000, 1000, 0.5, 10, 1e-6),
    ("a2", "all", 60000, 60000, 3.0, 80, 1e-5),
    ("a3", "all", 10 ** 6, 10 ** 6, 4.0, 200, 1e-10),
    ("a4", "all", 10000, 10000, 1.0, 1000, 1e-4),
    ("a5", "all", 200, 200, 0.3, 50, 1e-5),
    ("s1", "sampled", 60000, 2000, 2.0, 6000, 1e-5),
    ("s2", "sampled", 10 ** 5, 100, 1.0, 10 ** 4, 1e-6),
    ("s3", "sampled", 1000, 500, 0.7, 30, 1e-9),
    ("s4", "sampled", 10 ** 6, 10 ** 5, 5.0, 100, 1e-7),
    ("s5", "sampled", 500, 50, 3.0, 100, 1e-4),
    ("c1", "check-in", 60000, 0.1, 2.0, 300, 1e-5),
    ("c2", "check-in", 10 ** 6, 0.01, 3.0, 10 ** 4, 1e-8),
    ("c3", "check-in", 10 ** 4, 0.5, 1.0, 100, 1e-10),
    ("c4", "check-in", 10 ** 5, 2e-4, 1.0, 10 ** 5, 1e-5),
]


def single(name, part, n, k, eps0, dl):
    """T = 1: direct sum of the atoms, solved for eps. Every C: with its kinks
    the hockey-stick is not smooth in C."""
    p, q = shuffle_atoms(k, eps0, "blanket", sig=9.5, every=True)
    g = k / n
    f = lambda e: math.fsum(np.maximum(g * (p - q) - math.expm1(e) * q, 0)) - dl
    return brentq(f, 0, math.log1p(g * math.expm1(eps0)), xtol=1e-12)


def main():
    out = open("composed.tsv", "w")
    out.write("# golden.py, numpy/scipy double, Bromwich inversion to 1e-6 relative, %s\n" % DATE)
    out.write("# name\tparticipation\tn\tk or gamma\teps0\tT\tdelta\tmethod\teps\n")

    def row(s, method, eps):
        out.write("%s\t%s\t%d\t%r\t%r\t%d\t%r\t%s\t%.9g\n" % (s + (method, eps)))
        out.flush()
        print(s[0], method, eps, flush=True)
    for s in SETTINGS:
        name, part, n, k, eps0, T, dl = s
        for kind in ("blanket", "clones"):
            rnd = CheckIn(n, k, eps0, kind) if part == "check-in" else Fixed(k, n, eps0, kind)
            up = rdp_eps(rnd, T, dl)
            row(s, kind + "-rdp", up)
            row(s, kind + "-pld", solve(rnd, T, dl, up))
        if part != "check-in":
            row(s, "girgis-thm1", girgis_eps(k, n, eps0, T, dl))
            row(s, "exact-rr3", solve(Concrete(k, n, eps0, "rr3"), T, dl, up))
            row(s, "exact-rr2", max(solve(Concrete(k, n, eps0, "rr2", o), T, dl, up) for o in (0, 1)))
    for s in [("t1", "all", 1000, 1000, 1.0, 1, 1e-6), ("t2", "all", 10 ** 4, 10 ** 4, 4.0, 1, 1e-8),
              ("t3", "sampled", 10 ** 5, 1000, 2.0, 1, 1e-7), ("t4", "all", 10 ** 6, 10 ** 6, 2.0, 1, 1e-10)]:
        row(s, "blanket-pld", single(s[0], s[1], s[2], s[3], s[4], s[6]))


if __name__ == "__main__":
    main()
