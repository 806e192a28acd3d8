#!/usr/bin/env python3
"""Golden values for one round: delta(eps), Renyi orders, G21 Theorems 1 and 2.

Everything is a direct double sum over the pair's outcomes (C, a). Nothing is
grouped, no closed form per C, no threshold index, no block:
  k <= 100   mpmath, 40 digits, every outcome
  k  > 100   numpy, every outcome within 40 standard deviations
Theorem 2 is computed twice: by the printed sum of central moments (mpmath)
and as the Renyi divergence of the subsampled pair; the two must agree.
"""
import math
import numpy as np
from scipy.special import gammaln, logsumexp
from mpmath import mp, mpf

mp.dps = 40
DATE = "2026-11-21"
EPS0 = [0.1, 0.5, 1.0, 2.0, 4.0, 8.0]
RATE = {"clones": lambda e0: mp.exp(-e0), "blanket": lambda e0: 2 / (mp.exp(e0) + 1)}


def mp_pair(k, eps0, kind):
    """Every outcome (p, q) of the shuffle pair, 40 digits."""
    e0 = mpf(eps0)
    E, r = mp.exp(e0), RATE[kind](e0)
    for c in range(k):
        pc = mp.binomial(k - 1, c) * r ** c * (1 - r) ** (k - 1 - c)
        for a in range(c + 1):  # a clones among the c fell on the first side
            base = pc * mp.binomial(c, a) / mpf(2) ** c
            # The victim adds one to the first side or to the second. Outcomes
            # (a+1, c-a) are collected below.
            yield c, a, base, E


def mp_atoms(k, eps0, kind):
    e0 = mpf(eps0)
    E = mp.exp(e0)
    hi, lo = E / (E + 1), 1 / (E + 1)
    rows = {}
    for c, a, base, _ in mp_pair(k, eps0, kind):
        for first, wp, wq in ((a + 1, hi, lo), (a, lo, hi)):
            p, q = rows.get((c, first), (mpf(0), mpf(0)))
            rows[(c, first)] = (p + base * wp, q + base * wq)
    return list(rows.values())


def binom_log(n, p, x):
    return (gammaln(n + 1.0) - gammaln(x + 1.0) - gammaln(n - x + 1.0)
            + x * math.log(p) + (n - x) * math.log1p(-p))


def np_atoms(k, eps0, kind, sigmas=40):
    E = math.exp(eps0)
    r = float(RATE[kind](mpf(eps0)))
    n = k - 1
    s = math.sqrt(n * r * (1 - r))
    lo, hi = max(0, int(n * r - sigmas * s - 50)), min(n, int(n * r + sigmas * s + 50))
    c = np.arange(lo, hi + 1)
    lc = binom_log(n, r, c.astype(float))
    m = c + 1
    w = int(sigmas * math.sqrt(m[-1]) / 2 + 50)
    mid = m // 2
    a = mid[:, None] + np.arange(-w, w + 1)[None, :]
    ok = (a >= 0) & (a <= m[:, None])
    af, mf = np.where(ok, a, 0).astype(float), m[:, None].astype(float)
    la = gammaln(mf + 1) - gammaln(af + 1) - gammaln(mf - af + 1) - mf * math.log(2)
    base = np.exp(lc[:, None] + la) * 2 / (mf * (E + 1))
    p, q = base * (E * af + (mf - af)), base * (af + E * (mf - af))
    return p[ok], q[ok]


def atoms(k, eps0, kind):
    if k <= 100:
        rows = mp_atoms(k, eps0, kind)
        return [r[0] for r in rows], [r[1] for r in rows]
    return np_atoms(k, eps0, kind)


def hockey(p, q, eps):
    if isinstance(p, list):
        e = mp.exp(mpf(eps))
        return mp.fsum(max(x - e * y, mpf(0)) for x, y in zip(p, q))
    return mpf(math.fsum(np.maximum(p - math.exp(eps) * q, 0)))


def hybrid(p, q, g, eps):
    """Sampled k of n with g = k/n. The victim is in with probability g."""
    if eps >= 0:
        if isinstance(p, list):
            g, e = mpf(g), mp.exp(mpf(eps))
            return mp.fsum(max((1 - g) * y + g * x - e * y, mpf(0)) for x, y in zip(p, q))
        # (1-g) q + g p - e q = g (p - q) - (e - 1) q
        return mpf(math.fsum(np.maximum(g * (p - q) - math.expm1(eps) * q, 0)))
    e = mp.exp(mpf(eps))
    return 1 - e + e * hybrid(p, q, g, -eps)


def renyi(p, q, lam):
    if isinstance(p, list):
        lam = mpf(lam)
        s = mp.fsum(x ** lam * y ** (1 - lam) for x, y in zip(p, q))
        return mp.log(s) / (lam - 1)
    pos = q > 0
    p, q = p[pos], q[pos]
    t = np.log(p / q)
    if lam * t.max() > 600:  # far from 0: no cancellation, but exp overflows
        return mpf(logsumexp(lam * t, b=q) / (lam - 1))
    # sum q (r^lam - 1 - lam (r - 1)): the linear part is zero in total.
    v = q * (np.expm1(lam * t) - lam * np.expm1(t))
    return mpf(math.log1p(math.fsum(v)) / (lam - 1))


def renyi_hybrid(p, q, g, lam):
    """Each outcome with p > q gives log1p(g(p/q-1)) and its mirror image."""
    if isinstance(p, list):
        g, lam, s, used = mpf(g), mpf(lam), mpf(0), mpf(0)
        for x, y in zip(p, q):
            if x > y:
                L = mp.log1p(g * (x / y - 1))
                up = y * mp.exp(L)
                s += y * mp.exp(lam * L) + up * mp.exp(-lam * L)
                used += y + up
        return mp.log(s + 1 - used) / (lam - 1)
    keep = (p > q) & (q > 0)
    p, q = p[keep], q[keep]
    L = np.log1p(g * (p / q - 1))
    if lam * L.max() > 600:
        rest = 1 - np.sum(q + q * np.exp(L))
        z = np.concatenate([lam * L, -lam * L, [0.0]])
        return mpf(logsumexp(z, b=np.concatenate([q, q * np.exp(L), [rest]])) / (lam - 1))
    v = q * np.expm1(lam * L) + q * np.exp(L) * np.expm1(-lam * L)
    return mpf(math.log1p(math.fsum(v)) / (lam - 1))


def girgis_upper(eps0, k, g, lam):
    e0, g = mpf(eps0), mpf(g)
    E = mp.exp(e0)
    kb = mp.floor((k - 1) / (2 * E)) + 1
    s = 1 + 4 * mp.binomial(lam, 2) * g ** 2 * (E - 1) ** 2 / (kb * E)
    for j in range(3, lam + 1):
        s += (mp.binomial(lam, j) * g ** j * j * mp.gamma(mpf(j) / 2)
              * (2 * (E ** 2 - 1) ** 2 / (kb * E ** 2)) ** (mpf(j) / 2))
    u = g * (E ** 2 - 1) / E
    s += ((1 + u) ** lam - 1 - lam * u) * mp.exp(-(k - 1) / (8 * E))
    return mp.log(s) / (lam - 1)


def girgis_lower(eps0, k, g, lam):
    e0, g = mpf(eps0), mpf(g)
    E = mp.exp(e0)
    pr = 1 / (E + 1)
    pm = [mp.binomial(k, m) * pr ** m * (1 - pr) ** (k - m) for m in range(k + 1)]
    sc = (E ** 2 - 1) / (k * E)
    direct = mp.fsum(w * (1 + g * sc * (m - k * pr)) ** lam for m, w in enumerate(pm))
    if lam <= 20:
        s = 1 + mp.binomial(lam, 2) * g ** 2 * (E - 1) ** 2 / (k * E)
        for j in range(3, lam + 1):
            s += mp.binomial(lam, j) * (g * sc) ** j * mp.fsum(w * (m - k * pr) ** j for m, w in enumerate(pm))
        assert abs(s / direct - 1) < mpf(10) ** -25, (s, direct)
    return mp.log(direct) / (lam - 1)


def head(f, cols, how):
    f.write("# golden.py, %s, %s\n# %s\n" % (how, DATE, "\t".join(cols)))


def num(x):
    return mp.nstr(x, 17, min_fixed=0, max_fixed=0)


def ks(kind):
    return [1, 2, 3, 10, 100, 1000] + ([10000] if kind == "blanket" else [])


HOW = "mpmath 40 digits for k <= 100, numpy double sum (about 1e-10 relative) above"


def main():
    sh, hy, rd = open("shuffle.tsv", "w"), open("hybrid.tsv", "w"), open("renyi.tsv", "w")
    head(sh, ["pair", "k", "eps0", "eps", "delta"], HOW)
    head(hy, ["pair", "k", "n", "eps0", "eps", "delta"], HOW)
    head(rd, ["pair", "k", "n", "eps0", "order", "divergence"], HOW)
    for kind in ("clones", "blanket"):
        for k in ks(kind):
            for e0 in EPS0:
                p, q = atoms(k, e0, kind)
                for f in (0, 0.03, 0.2, 0.5, 0.9):
                    d = hockey(p, q, f * e0)
                    if d > 1e-40:
                        sh.write("%s\t%d\t%r\t%r\t%s\n" % (kind, k, e0, f * e0, num(d)))
                for n in ([k, 3 * k] if k < 1000 else [k, 1000 * k]):
                    g = mpf(k) / n
                    gf = g if k <= 100 else k / n
                    for f in (-0.5, -0.05, -0.001, 0.001, 0.05, 0.5):
                        eps = f * math.log1p(float(g) * math.expm1(e0))
                        d = hybrid(p, q, gf, eps)
                        if d > 1e-40:
                            hy.write("%s\t%d\t%d\t%r\t%r\t%s\n" % (kind, k, n, e0, eps, num(d)))
                    for lam in (1.5, 2, 2.7, 8, 32, 200):
                        v = renyi(p, q, lam) if n == k else renyi_hybrid(p, q, gf, lam)
                        rd.write("%s\t%d\t%d\t%r\t%r\t%s\n" % (kind, k, n, e0, lam, num(v)))
    gi = open("../literature/testdata/girgis.tsv", "w")
    head(gi, ["theorem", "k", "n", "eps0", "order", "divergence"], "mpmath 60 digits")
    with mp.workdps(60):
        for e0 in [0.5, 1.0, 1.5, 2.0, 4.0]:
            for k, n in [(2, 2), (10, 10), (10, 100), (1000, 10 ** 6), (1000, 1000), (10 ** 4, 6 * 10 ** 4)]:
                for lam in [2, 3, 7, 20, 64, 256]:
                    g = mpf(k) / n
                    gi.write("upper\t%d\t%d\t%r\t%d\t%s\n" % (k, n, e0, lam, num(girgis_upper(e0, k, g, lam))))
                    if k <= 1000:
                        gi.write("lower\t%d\t%d\t%r\t%d\t%s\n" % (k, n, e0, lam, num(girgis_lower(e0, k, g, lam))))
    # Check-in, k public: k ~ Bin(n, gamma), inclusion k/n given k; every k.
    ci = open("checkin.tsv", "w")
    head(ci, ["pair", "n", "gamma", "eps0", "eps", "delta"], "mpmath 40 digits for n <= 60, numpy every k above")
    for n, gam in [(2, 0.2), (5, 0.5), (20, 0.1), (60, 1.0), (400, 0.05)]:
        for e0 in [0.5, 1.0, 3.0]:
            E = mp.exp(mpf(e0))
            mix = []
            for k in range(1, n + 1):
                w = mp.binomial(n, k) * mpf(gam) ** k * (1 - mpf(gam)) ** (n - k)
                if w > mpf(10) ** -30:
                    mix.append((w, mpf(k) / n, atoms(k, e0, "blanket") if n <= 60 else np_atoms(k, e0, "blanket")))
            for f in (-0.3, 0.0, 0.02, 0.1, 0.3, 0.8):
                eps = f * e0
                a = abs(eps)
                h = mp.fsum(w * hybrid(p, q, g if n <= 60 else float(g), a) for w, g, (p, q) in mix)
                if eps < 0:
                    e = mp.exp(mpf(eps))
                    h = 1 - e + e * h
                if h > 1e-30:
                    ci.write("blanket\t%d\t%r\t%r\t%r\t%s\n" % (n, gam, e0, eps, num(h)))


if __name__ == "__main__":
    main()
