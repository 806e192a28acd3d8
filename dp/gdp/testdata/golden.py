#!/usr/bin/env python3
"""Golden values of the Gaussian trade-off: mpmath, 80 digits."""
import random
from mpmath import mp, mpf, erfc, exp, log, sqrt, findroot, nstr

mp.dps = 80
DATE = "2026-11-21"


def tail(x):
    return erfc(x / sqrt(mpf(2))) / 2


def delta(mu, eps):
    mu, eps = mpf(mu), mpf(eps)
    return tail(eps / mu - mu / 2) - exp(eps) * tail(eps / mu + mu / 2)


def quantile(alpha):
    """x with tail(x) = alpha."""
    alpha = mpf(alpha)
    lo, hi = mpf(-60), mpf(60)
    for _ in range(260):
        mid = (lo + hi) / 2
        if tail(mid) > alpha:
            lo = mid
        else:
            hi = mid
    return lo


random.seed(4)
with open("delta.tsv", "w") as f:
    f.write(f"# golden.py, mpmath {mp.dps} digits, {DATE}\n# mu\teps\tlog delta\n")
    for mu in [1e-9, 1e-6, 1e-3, .0299, .1, .49, .5, .51, 1, 2.5, 7, 40, 1e3]:
        for z in [-mu / 2, -mu / 4, 0, .1, 1, 3, 4.9, 5.1, 8, 12, 20, 37]:
            eps = mu * (z + mu / 2)
            if eps < 0:
                continue
            f.write(f"{mu!r}\t{eps!r}\t{nstr(log(delta(mu, eps)), 25)}\n")
    for _ in range(150):
        mu = 10 ** random.uniform(-5, 2)
        eps = mu * abs(random.uniform(-mu / 2, 37) + mu / 2)
        f.write(f"{mu!r}\t{eps!r}\t{nstr(log(delta(mu, eps)), 25)}\n")

with open("tradeoff.tsv", "w") as f:
    f.write(f"# golden.py, mpmath {mp.dps} digits, {DATE}\n# mu\talpha\tbeta\n")
    for mu in [0, 1e-6, .1, 1, 3, 10, 30]:
        for alpha in [1e-300, 1e-30, 1e-9, .001, .1, .3, .5, .7, .99, .999999, 1 - 2**-40]:
            f.write(f"{mu!r}\t{alpha!r}\t{nstr(tail(mpf(mu) - quantile(alpha)), 25)}\n")
