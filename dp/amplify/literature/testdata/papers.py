#!/usr/bin/env python3
"""Golden values for the bounds of the papers.

Written from the formulas, term by term: mpmath, 50 digits, every outcome, no
blocks, no thresholds in closed form, no logarithms of sums. One row a value:
name, arguments, value.
"""
from mpmath import mp, mpf

mp.dps = 50
DATE = "2026-11-21"
e = mp.exp
OUT = []


def put(name, value, *args):
    OUT.append("\t".join([name, " ".join(repr(a) for a in args), mp.nstr(value, 17)]))


def binom(n, p, k):
    return mp.binomial(n, k) * p ** k * (1 - p) ** (n - k)


# Kairouz, Oh, Viswanath 2015.
def kov_closed(eps, T, d):
    m, s = T * eps * mp.tanh(eps / 2), eps * mp.sqrt(T)
    return min(T * eps, m + s * mp.sqrt(2 * mp.log(mp.e + s / d)), m + s * mp.sqrt(2 * mp.log(1 / d)))


def kov_exact(eps, T, x):
    p = e(eps) / (1 + e(eps))
    return sum(max(mpf(0), binom(T, p, b) - e(x) * binom(T, 1 - p, b)) for b in range(T + 1))


for eps in (0.001, 0.05, 0.3, 2.0):
    for T in (1, 2, 7, 40, 300):
        for d in (1e-3, 1e-9):
            put("kov-closed", kov_closed(mpf(eps), T, mpf(d)), eps, T, d)
        for share in (0.05, 0.3, 0.8):
            x = share * T * eps
            put("kov-exact", kov_exact(mpf(eps), T, mpf(x)), eps, T, x)


# Feldman, McMillan, Talwar: epsilon at delta.
def fmt(eps0, inverse, k, d):
    return mp.log(1 + mp.tanh(eps0 / 2) * (8 * mp.sqrt(inverse * mp.log(4 / d) / k) + 8 * inverse / k))


for eps0 in (0.1, 1.0, 2.5):
    for k in (10 ** 4, 10 ** 6, 10 ** 9):
        for d in (1e-3, 1e-8):
            E = e(mpf(eps0))
            if mpf(eps0) <= mp.log(k / (16 * mp.log(4 / mpf(d)))):
                put("fmt22", fmt(mpf(eps0), E, k, mpf(d)), eps0, k, d)
            if mpf(eps0) <= mp.log(k / (8 * mp.log(4 / mpf(d))) - 1):
                put("fmt23", mp.log(1 + (E - 1) * (4 * mp.sqrt(2 * mp.log(4 / mpf(d)) / ((E + 1) * k)) + mpf(4) / k)), eps0, k, d)


# Girgis et al. 2021, both papers; Wang, Balle, Kasiviswanathan 2019.
def same(E, m, a):
    if a == 2:
        return 4 * (E - 1) ** 2 / (m * E)
    return a * mp.gamma(mpf(a) / 2) * (2 * (E ** 2 - 1) ** 2 / (m * E ** 2)) ** (mpf(a) / 2)


def kbar(E, k):
    return mp.floor((k - 1) / (2 * E)) + 1


def few(E, k):
    return e(-(k - 1) / (8 * E))


def ternary(E, k, a):
    return same(E, kbar(E, k), a) + (E - 1 / E) ** a * few(E, k)


def moment(eps0, k, l):
    E = e(eps0)
    s = 1 + mp.binomial(l, 2) * (E - 1) ** 2 / (kbar(E, k) * E) + e(eps0 * l) * few(E, k)
    for i in range(3, l + 1):
        s += mp.binomial(l, i) * i * mp.gamma(mpf(i) / 2) * ((E ** 2 - 1) ** 2 / (2 * kbar(E, k) * E ** 2)) ** (mpf(i) / 2)
    return min(s, e(eps0 * (l - 1)))


def wbk(eps0, k, g, l):
    E = e(eps0)
    M = lambda j: moment(eps0, k, j)
    s = 1 + g ** 2 * mp.binomial(l, 2) * min(4 * (M(2) - 1), M(2) * min(2, (E - 1) ** 2))
    for j in range(3, l + 1):
        s += g ** j * mp.binomial(l, j) * M(j) * min(2, (E - 1) ** j)
    return mp.log(s) / (l - 1)


for eps0 in (0.2, 1.0, 3.0):
    for k in (2, 50, 3000, 10 ** 7):
        for a in (2, 3, 8, 31):
            put("ternary-same", mp.log(same(e(mpf(eps0)), k, a)), eps0, k, a)
            put("ternary-shuffle", mp.log(ternary(e(mpf(eps0)), k, a)), eps0, k, a)
            put("gddsk", mp.log(moment(mpf(eps0), k, a)) / (a - 1), eps0, k, a)
            E, kb = e(mpf(eps0)), kbar(e(mpf(eps0)), k)
            put("gddsk-simple", mp.log(e(a ** 2 * (E - 1) ** 2 / kb) + e(eps0 * mpf(a)) * few(E, k)) / (a - 1), eps0, k, a)
            for g in (0.3, 1e-3):
                put("wbk", wbk(mpf(eps0), k, mpf(g), a), eps0, k, g, a)


# Self check-in.
def sci1(eps0, n, g, l, printed):
    E, s = e(eps0), mpf(1)
    for k in range(1, n + 1):
        inc = g if printed else mpf(k) / n
        w = binom(n, g, k)
        for j in range(2, l + 1):
            s += w * mp.binomial(l, j) * inc ** j * ternary(E, k, j)
    return mp.log(s) / (l - 1)


def sci2(eps0, n, g, l, D):
    E, mu, s = e(eps0), n * g, mpf(1)
    low = e(-D ** 2 * mu / 2)
    k = mp.floor((1 - D) * mu) + 1
    for j in range(2, l + 1):
        R = e(mu * (e(j / mu) - 1 - j / mu))
        s += mp.binomial(l, j) * g ** j * (same(E, 1, j) * (low + R * kbar(E, k) ** (-mpf(j) / 2)) + (E - 1 / E) ** j * (low + R * few(E, k)))
    return mp.log(s) / (l - 1)


def sci2_printed(eps0, n, g, l, D):
    E, mu = e(eps0), n * g
    low = e(-D ** 2 * mu / 2)
    lt = mp.floor((1 - D) * mu / (2 * eps0)) + 1
    s = 1 + 4 * mp.binomial(l, 2) * g ** 2 * (E - 1) ** 2 * (e(-eps0) * low + e(-eps0 / lt))
    for j in range(3, l + 1):
        s += mp.binomial(l, j) * g ** j * same(E, 1, j) * (low + lt ** (-mpf(j) / 2))
    x = g * (E - 1 / E)
    s += ((1 + x) ** l - 1 - l * x) * (low + e(-(1 - D) * mu / (8 * eps0)))
    return mp.log(s) / (l - 1)


def sci3(eps0, n, g, l, D):
    E, mu = e(eps0), n * g
    return mp.log(1 + (1 - e(-D ** 2 * mu / (2 + D))) * mp.binomial(l, 2) * g ** 2 * (E - 1) ** 2 / ((1 + D) * mu * E)) / (l - 1)


for eps0 in (0.5, 2.0):
    for n, g in ((40, 0.3), (1500, 0.02)):
        for l in (2, 5, 14):
            put("sci1", sci1(mpf(eps0), n, mpf(g), l, False), eps0, n, g, l)
            put("sci1-printed", sci1(mpf(eps0), n, mpf(g), l, True), eps0, n, g, l)
for eps0 in (0.5, 2.0, 12.0):
    for n, g in ((54000, 1.0), (10 ** 7, 1e-3), (2000, 0.05)):
        for l in (2, 6, 40):
            for D in (0.05171283, 0.41391727):
                put("sci2", sci2(mpf(eps0), n, mpf(g), l, mpf(D)), eps0, n, g, l, D)
                put("sci2-printed", sci2_printed(mpf(eps0), n, mpf(g), l, mpf(D)), eps0, n, g, l, D)
            best = max(sci3(mpf(eps0), n, mpf(g), l, mpf(2) ** (-mpf(i) / 12)) for i in range(300))
            put("sci3", best, eps0, n, g, l)


# EAB: direct sum of section 2 of the design, and the limit law.
def eab1(eps0, k, l, rate):
    E, s = e(eps0), mpf(0)
    for c in range(k):
        m, inner = c + 1, mpf(0)
        for a in range(m + 1):
            b = m - a
            inner += mp.binomial(m, a) / mpf(2) ** m * 2 / ((E + 1) * m) * (E * a + b) ** l * (a + E * b) ** (1 - l)
        s += binom(k - 1, rate, c) * inner
    return mp.log(s) / (l - 1)


for eps0 in (0.1, 1.0, 4.0):
    for k in (1, 2, 9, 60):
        for l in (1.01, 2.0, 7.5, 60.0):
            put("eab1", eab1(mpf(eps0), k, mpf(l), e(-mpf(eps0))), eps0, k, l)
    for k in (2, 100, 10 ** 6):
        E = e(mpf(eps0))
        mu = mp.sqrt(4 * mp.tanh(mpf(eps0) / 2) ** 2 / ((k - 1) / E + 4 * E / (E + 1) ** 2))
        put("gdp-mu", mu, eps0, k)
        for t in (0.5, 2.0, 5.0):
            x = float(t * mu)
            d = mp.ncdf(mu / 2 - mpf(x) / mu) - e(mpf(x)) * mp.ncdf(-mu / 2 - mpf(x) / mu)
            put("gdp-delta", d, eps0, k, x)


# Balle, Bell, Gascon, Nissim 2019.
def blanket_law(eps0, K, g):
    E = e(eps0)
    gamma = K / (E + K - 1)
    return gamma, [(gamma * (E - g), mpf(1) / K), (gamma * (1 - g * E), mpf(1) / K), (gamma * (1 - g), mpf(K - 2) / K)]


def balle_exact(eps0, k, K, eps):
    g = e(eps)
    gamma, law = blanket_law(eps0, K, g)
    s = mpf(0)
    for m in range(1, k + 1):
        t = mpf(0)
        for u in range(m + 1):
            for v in range(m - u + 1):
                w = m - u - v
                if w and K == 2:
                    continue
                pr = mp.factorial(m) / mp.factorial(u) / mp.factorial(v) / mp.factorial(w) * law[0][1] ** u * law[1][1] ** v * (law[2][1] ** w if w else 1)
                t += pr * max(mpf(0), u * law[0][0] + v * law[1][0] + w * law[2][0])
        s += binom(k, gamma, m) * t
    return s / (gamma * k)


def balle_tail(eps0, k, K, eps, bennett):
    g, E = e(eps), e(eps0)
    a = g - 1
    if K:
        gamma, law = blanket_law(eps0, K, g)
        top, width = law[0][0], law[0][0] - law[1][0]
        sq = sum(x * x * p for x, p in law)
    else:
        gamma, top, width = 1 / E, E * (1 - g / E ** 2), (1 + g) * (E - 1 / E)
        sq = E * (g * g + 1) - 2 * gamma * g / E ** 2
    u = a * top / sq
    phi = (1 + u) * mp.log(1 + u) - u
    x, head = (sq / top ** 2 * phi, top / mp.log(1 + u)) if bennett else (2 * a * a / width ** 2, width ** 2 / (4 * a))
    s = (1 - gamma * (1 - e(-x))) ** k - (1 - gamma) ** k
    return min(mpf(1), head * s / (gamma * k))


for eps0 in (0.5, 2.0):
    for K in (2, 3, 10):
        for k in (1, 5, 24):
            for share in (0.1, 0.5):
                put("balle-exact", balle_exact(mpf(eps0), k, K, mpf(share * eps0)), eps0, k, K, share * eps0)
    for K in (0, 2, 10):
        for k in (100, 10 ** 5):
            for share in (0.02, 0.2, 0.6):
                put("balle-hoeffding", balle_tail(mpf(eps0), k, K, mpf(share * eps0), False), eps0, k, K, share * eps0)
                put("balle-bennett", balle_tail(mpf(eps0), k, K, mpf(share * eps0), True), eps0, k, K, share * eps0)

with open("papers.tsv", "w") as f:
    f.write("# papers.py, mpmath, 50 digits, %s\n# name\targuments\tvalue\n" % DATE)
    f.write("\n".join(OUT) + "\n")
print(len(OUT))
