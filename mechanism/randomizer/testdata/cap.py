#!/usr/bin/env python3
"""Golden values for cap_test.go: mpmath, 50 digits, 2026-11-21.

For a cap of the unit sphere of R^d with angle phi (cos phi = gamma): the mass
q = I_{sin^2 phi}((d-1)/2, 1/2)/2 and the first moment
S = sin^(d-1)(phi) * Gamma(d/2) / (sqrt(pi) * (d-1) * Gamma((d-1)/2)).
Then, for several eps0, the best cap: the maximum over phi of
m = S*(E-1)/(1+q*(E-1)), found by bisection on the stationarity condition
    cos(phi) = m,
which follows from dS = gamma dq at the edge of the cap.
"""
from mpmath import mp, mpf, betainc, gamma, sqrt, pi, sin, cos, exp, asin, findroot, nstr, loggamma, hyp2f1, log

mp.dps = 50


def cap(d, phi):
    x = sin(phi) ** 2
    a = mpf(d - 1) / 2
    # I_x(a, 1/2) by the hypergeometric series in 1-x where x is near 1.
    lb = loggamma(a) + loggamma(mpf(1) / 2) - loggamma(a + mpf(1) / 2)
    q = exp(a * log(x) + log(cos(phi)) - lb - log(a)) * hyp2f1(a + mpf(1) / 2, 1, a + 1, x) / 2
    s = exp((d - 1) * log(sin(phi)) + loggamma(mpf(d) / 2) - loggamma(a)) / (sqrt(pi) * (d - 1))
    return q, s


print("# cap.py, mpmath, 50 digits, 2026-11-21")
print("# mass: dim angle q S")
for d in (2, 3, 4, 10, 100, 441, 4420, 13706, 100000):
    for g in ("0.05", "0.7", "1.5", "2.5", "4", "9"):
        c = mpf(g) / sqrt(mpf(d))
        if c >= 1:
            continue
        phi = mpf(float(mp.acos(c)))  # the double that the test uses
        q, s = cap(d, phi)
        print("mass", d, repr(float(phi)), nstr(q, 25), nstr(s, 25))
print("# best: dim eps0 m")
for d in (2, 3, 10, 100, 4420):
    for e in (mpf("0.5"), mpf(2), mpf(3), mpf(6), mpf(20)):
        less = exp(e) - 1

        def f(phi):
            q, s = cap(d, phi)
            return s * less / (1 + q * less) - cos(phi)

        lo, hi = mpf("1e-6"), pi / 2 - mpf("1e-12")
        for _ in range(120):
            mid = (lo + hi) / 2
            if f(mid) > 0:  # cos(phi) < m: the cap is too large
                hi = mid
            else:
                lo = mid
        q, s = cap(d, lo)
        print("best", d, nstr(e, 5), nstr(s * less / (1 + q * less), 25))
