#!/usr/bin/env python3
"""Golden delta of one round of Gaussian sums by direct integration, mpmath.

The integrand is (p - e^eps q)_+ with p = (1-g) N(-mu/2) + g N(mu/2) and
q = N(-mu/2), and the order exchanged; the larger is kept, which for eps < 0 is
1 - e^eps + e^eps * (the other order at -eps). Check-in sums over k.
"""
from mpmath import mp, mpf, quad, exp, log, sqrt, pi, binomial, nstr

mp.dps = 40
DATE = "2026-11-21"


def phi(x):
    return exp(-x * x / 2) / sqrt(2 * pi)


def one(mu, g, eps):
    e = exp(eps)
    p = lambda x: (1 - g) * phi(x + mu / 2) + g * phi(x - mu / 2)
    q = lambda x: phi(x + mu / 2)
    # p - e q > 0 for x > x0; q - e p > 0 for x < x1.
    best = mpf(0)
    if (e - 1) / g + 1 > 0:
        x0 = log((e - 1) / g + 1) / mu
        pts = [x0 + mpf(i) for i in range(0, 45, 3)]
        best = max(best, quad(lambda x: p(x) - e * q(x), pts))
    else:
        best = max(best, 1 - e)
    if 1 / e > 1 - g:
        x1 = log((1 / e - 1 + g) / g) / mu
        pts = [x1 - mpf(i) for i in range(45, -1, -3)]
        best = max(best, quad(lambda x: q(x) - e * p(x), pts))
    return best


print(f"# gaussian.py, mpmath {mp.dps} digits, {DATE}")
print("# sigma\tn\tk\tgamma (0: k fixed)\teps\tdelta")
for sigma, n, k in [(1, 1, 1), (1, 10, 3), (.4, 5, 1), (3, 100, 100), (5, 10000, 100), (1, 600000, 600)]:
    for z in [-2, -.5, 0, .3, 1, 3, 6, 10]:
        mu, g = 2 / (mpf(sigma) * sqrt(mpf(k))), mpf(k) / n
        eps = float(mpf(z) / 3 * g if z <= 0 else log(1 + g * (exp(mu * (mpf(z) + mu / 4)) - 1)))
        print(f"{sigma}\t{n}\t{k}\t0\t{eps!r}\t{nstr(one(mu, g, mpf(eps)), 20)}")
for sigma, n, gamma in [(1, 3, .2), (2, 12, .5), (.7, 40, .05)]:
    for eps in [-.2, 0, .1, .5, 2]:
        d = mpf(0)
        if eps < 0:
            d += (1 - mpf(gamma)) ** n * (1 - exp(mpf(eps)))
        for k in range(1, n + 1):
            mu = 2 / (mpf(sigma) * sqrt(mpf(k)))
            d += binomial(n, k) * mpf(gamma) ** k * (1 - mpf(gamma)) ** (n - k) * one(mu, mpf(k) / n, mpf(eps))
        print(f"{sigma}\t{n}\t0\t{gamma}\t{eps!r}\t{nstr(d, 20)}")
