#!/usr/bin/env python3
"""Golden Renyi values, mpmath 40 digits: divergences of explicit pairs at real
orders, and the conversion min over real orders for linear curves R = rho*lam.

The minimum is found by setting the derivative to zero (findroot), not by a
search over a grid of orders.
"""
from mpmath import mp, mpf, log, exp, findroot, nstr

mp.dps = 40
DATE = "2026-11-21"


def main():
    f = open("divergence.tsv", "w")
    f.write("# golden.py, mpmath 40 digits, %s\n# masses p\tmasses q\torder\tdivergence\n" % DATE)
    pairs = [([0.75, 0.25], [0.25, 0.75]), ([0.5, 0.3125, 0.1875], [0.25, 0.25, 0.5]),
             ([0.5 + 2 ** -30, 0.5 - 2 ** -30], [0.5, 0.5]), ([1 - 2 ** -20, 2 ** -20], [2 ** -20, 1 - 2 ** -20]),
             ([0.25, 0.75], [0.25, 0.75])]
    for p, q in pairs:
        for lam in (1.0009765625, 1.5, 2, 2.7, 8, 32, 200, 5000):
            l = mpf(lam)
            d = log(sum(mpf(x) ** l * mpf(y) ** (1 - l) for x, y in zip(p, q))) / (l - 1)
            f.write("%s\t%s\t%r\t%s\n" % (",".join(map(repr, p)), ",".join(map(repr, q)), lam, nstr(d, 17)))
    f = open("convert.tsv", "w")
    f.write("# golden.py, mpmath 40 digits, %s; divergence rho*order, best real order\n# rho\tdelta\torder\teps\n" % DATE)
    for rho in (1e-6, 1e-4, 0.01, 0.1, 1.0, 10.0):
        for dl in (1e-3, 1e-5, 1e-8, 1e-12):
            r, d = mpf(rho), mpf(dl)
            eps = lambda l: r * l + log((l - 1) / l) - (log(d) + log(l)) / (l - 1)
            # With u = log(l - 1); starting point of the Gaussian heuristic.
            g = lambda u: mp.diff(lambda v: eps(1 + exp(v)), u)
            u = findroot(g, log(mp.sqrt(-log(d) / r)), tol=1e-25)
            l = 1 + exp(u)
            f.write("%r\t%r\t%s\t%s\n" % (rho, dl, nstr(l, 12), nstr(eps(l), 17)))


if __name__ == "__main__":
    main()
