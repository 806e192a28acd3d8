#!/usr/bin/env python3
"""Golden binomial tails: log Pr[X = x] and log Pr[X >= x], X ~ Bin(n, p).

Route: 60-digit loggamma for the pmf; the survival is the incomplete beta
integral, by Gauss-Legendre pieces around the mode of its integrand (a direct
sum where n is small). No saddle point, no continued fraction, no recurrence.
"""
import sys
from mpmath import mp, mpf, loggamma, log, log1p, quad, exp, sqrt, nstr, inf

mp.dps = 60
DATE = "2026-11-21"


def logpmf(n, p, x):
    return (loggamma(n + 1) - loggamma(x + 1) - loggamma(n - x + 1)
            + x * log(p) + (n - x) * log1p(-p))


def logsf(n, p, x):
    if x <= 0:
        return mpf(0)
    if n <= 2000:
        return log(sum(exp(logpmf(n, p, i)) for i in range(x, n + 1)))
    a, b = mpf(x), mpf(n - x + 1)
    logb = loggamma(a) + loggamma(b) - loggamma(a + b)
    # The integrand t^(a-1) (1-t)^(b-1) on (0, p), scaled by its value at the
    # highest point of the interval so that nothing under- or overflows.
    mode = min(p, (a - 1) / (a + b - 2)) if a > 1 else mpf(0)
    f = lambda t: (a - 1) * log(t) + (b - 1) * log1p(-t)
    top = f(mode) if mode > 0 else mpf(0)
    if mode == 0:  # x = 1: closed form
        return log(-mp.expm1(n * log1p(-p)))
    # Width: the Gaussian scale at the mode, or the exponential one if p is
    # below the mode.
    slope = (a - 1) / p - (b - 1) / (1 - p)
    w = sqrt(mode * (1 - mode) / (a + b))
    if slope > 0 and mode == p:
        w = min(w, 1 / slope)
    lo = max(mpf(0), mode - 200 * w)
    cuts = [lo]
    t = lo
    while t < p:
        t = min(p, t + 2 * w)
        cuts.append(t)
        if t > mode + 60 * w:  # the rest is below e^-1800 of the peak
            break
    with mp.workdps(45):
        val = quad(lambda t: exp(f(t) - top) if t > 0 else mpf(0), cuts, method="gauss-legendre", maxdegree=5)
    return log(val) + top - logb


def cases():
    z = [-8, -3, -1, 0, 1, 3, 8, 20]
    for n in [1, 2, 5, 30, 1000]:
        for p in ["0.5", "0.1", "0.7310585786300049", "0.001"]:
            for x in sorted({0, 1, n // 3, n // 2, (9 * n) // 10, n}):
                yield n, p, x
    for n in [10 ** 5, 10 ** 9, 10 ** 12]:
        for p in ["0.5", "0.2384058440442351", "0.001", "1e-07"]:
            mu, s = n * float(p), (n * float(p) * (1 - float(p))) ** 0.5
            for x in sorted({min(n, max(0, int(round(mu + k * s)))) for k in z}):
                yield n, p, x


def main():
    # p is a float64: the exact value of the double is used, not the decimal.
    out = open("binomial.tsv", "w")
    out.write("# golden.py, mpmath 60 digits, %s; X ~ Bin(n, p), p the nearest float64\n" % DATE)
    out.write("# n\tp\tx\tlog Pr[X = x]\tlog Pr[X >= x]\n")
    for n, ps, x in cases():
        p = mpf(float(ps))
        out.write("%d\t%s\t%d\t%s\t%s\n" % (n, ps, x, nstr(logpmf(n, p, x), 20), nstr(logsf(n, p, x), 20)))


if __name__ == "__main__":
    main()
