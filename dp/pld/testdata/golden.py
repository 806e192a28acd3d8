#!/usr/bin/env python3
"""Golden compositions with exact answers.

A pair with losses +L, 0, -L (masses p = u e^L, w, u and q mirrored) composed T
times: the sum of losses is L (i - j), (i, j, T-i-j) trinomial. w = 0 is binary
randomized response; w > 0 its subsampled version. delta(eps) is the full sum,
mpmath 50 digits. Gaussian rows: closed form with mu = mu1 sqrt(T).
"""
from mpmath import mp, mpf, exp, log, sqrt, ncdf, binomial, nstr, fsum, loggamma

mp.dps = 50
DATE = "2026-11-21"


def three_point(L, w, T, eps):
    L, w, eps = mpf(L), mpf(w), mpf(eps)
    u = (1 - w) / (1 + exp(L))  # mass of -L under P
    # Net count s = i - j: polynomial (uE x + w + u/x)^T under P by repeated
    # squaring; under Q the net count is mirrored.
    def mul(a, b):
        r = [mpf(0)] * (len(a) + len(b) - 1)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                r[i + j] += x * y
        return r
    if w == 0:
        hi = exp(L) / (1 + exp(L))
        lh, ll = log(hi), log(1 - hi)
        tot = mpf(0)
        lf = lambda n: loggamma(n + 1)
        for i in range(T, -1, -1):
            s = 2 * i - T
            if s * L <= eps:
                break
            lp = lf(T) - lf(i) - lf(T - i) + i * lh + (T - i) * ll
            tot += exp(lp) * (1 - exp(eps - s * L))
        return tot
    base, out, t = [u, w, u * exp(L)], [mpf(1)], T
    while t:
        if t & 1:
            out = mul(out, base)
        t >>= 1
        if t:
            base = mul(base, base)
    return fsum(pm * (1 - exp(eps - (i - T) * L)) for i, pm in enumerate(out) if (i - T) * L > eps)


def gauss(mu1, T, eps):
    mu, eps = mpf(mu1) * sqrt(mpf(T)), mpf(eps)
    return ncdf(-eps / mu + mu / 2) - exp(eps) * ncdf(-eps / mu - mu / 2)


def main():
    f = open("compose.tsv", "w")
    f.write("# golden.py, mpmath 50 digits, %s; L and w the nearest float64\n# kind\tL\tw\tT\teps\tdelta\n" % DATE)
    for L, w, T in [(0.5, 0, 1), (2, 0, 3), (0.1, 0, 100), (0.01, 0, 10000), (0.001, 0, 10 ** 5), (1, 0, 50),
                    (1, 0.5, 2), (0.05, 0.25, 200), (0.3, 0.875, 250), (2, 0.96875, 100)]:
        sd = (float((1 - mpf(w)) * mpf(L) ** 2) * T) ** 0.5
        mean = float((1 - mpf(w)) * mp.tanh(mpf(L) / 2) * L) * T
        for z in (-1, 0, 1, 3, 6):
            e = round(mean + z * sd, 3)
            d = three_point(L, w, T, e)
            if 1e-60 < d:
                f.write("rr\t%r\t%r\t%d\t%r\t%s\n" % (L, w, T, e, nstr(d, 17)))
    for mu, T in [(0.001, 10 ** 5), (0.01, 1000), (0.1, 100)]:
        for e in (0.1, 0.5, 1.0, 2.0):
            f.write("gauss\t%r\t0\t%d\t%r\t%s\n" % (mu, T, e, nstr(gauss(mu, T, e), 17)))


if __name__ == "__main__":
    main()
