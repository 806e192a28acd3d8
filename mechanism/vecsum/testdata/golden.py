"""Golden values for vecsum: increments of Phi^-1 of distribution functions and
Gaussian curves, with mpmath at 60 digits. Writes increments.tsv, gauss.tsv."""
import mpmath as mp

mp.mp.dps = 60
DATE = "2026-11-21"


def uq(q):
    """z with Pr[N >= z] = q."""
    if q > mp.mpf(1) / 2:
        return -uq(1 - q)
    z = mp.sqrt(mp.mpf(2)) * mp.sqrt(-mp.log(2 * q)) if q < mp.mpf(1) / 2 else mp.mpf(0)
    for _ in range(200):
        p = mp.erfc(z / mp.sqrt(2)) / 2
        step = (mp.log(p) - mp.log(q)) * p / mp.npdf(z)
        z += step
        if abs(step) < mp.mpf(10) ** -50:
            break
    return z


def binomial(m, start, stop):
    """Pr[X = u] for u = start .. stop of Bin(m, 1/2)."""
    f = mp.exp(mp.loggamma(m + 1) - mp.loggamma(start + 1) - mp.loggamma(m - start + 1) - m * mp.log(2))
    out = []
    for u in range(start, stop + 1):
        out.append(f)
        f = f * (m - u) / (u + 1)
    return out


def worst(above, last, every):
    """above[i] = Pr[X >= i]; the largest increment for i = 0 .. last."""
    idx = range(last + 1) if every else [0, 1, last // 4, last // 2, last - 1, last]
    return max(uq(above[i + 1]) - uq(above[i]) for i in idx)


def finish(mass, tau, shift, every):
    above = [mp.mpf(0)] * (len(mass) + 1)
    for i in range(len(mass) - 1, -1, -1):
        above[i] = above[i + 1] + mass[i]
    hi = next(i for i in range(len(mass)) if above[i + 1] <= tau)
    return worst(above, hi + shift, every)


rows = []
for m, shift, tau in [(400, 2, "1e-13"), (400, 10, "1e-13"), (1000, 8, "1e-12"), (1001, 8, "1e-12"),
                      (4000, 10, "1e-13"), (4000, 1, "1e-6"), (100000, 300, "1e-14"),
                      (15999999, 2, "1e-13"), (40000000, 1000, "1e-15"), (4000000000, 665, "1e-14")]:
    sd = mp.sqrt(mp.mpf(m)) / 2
    c = m // 2 + m % 2
    last = min(m, int(c + 14 * sd + shift + 40))
    mu = finish(binomial(m, c, last), mp.mpf(tau), shift, sd < 100)
    rows.append(("binomial", m, shift, tau, mu))
for v, shift, tau in [(10, 2, "1e-13"), (100, 5, "1e-12"), (10000, 20, "1e-13")]:
    top = int(14 * mp.sqrt(v) + shift + 120)
    bes = [mp.besseli(top, v), mp.besseli(top - 1, v)]
    for k in range(top - 1, 0, -1):
        bes.append(bes[-2] + 2 * mp.mpf(k) / v * bes[-1])
    mass = [x * mp.exp(-v) for x in reversed(bes)]
    rows.append(("skellam", v, shift, tau, finish(mass, mp.mpf(tau), shift, v < 1000)))
    w = [mp.exp(-mp.mpf(i) * i / (2 * v)) for i in range(top)]
    total = w[0] + 2 * sum(w[1:])
    rows.append(("discrete-gaussian", v, shift, tau, finish([x / total for x in w], mp.mpf(tau), shift, v < 1000)))

with open("increments.tsv", "w") as f:
    f.write(f"# golden.py, mpmath 60 digits, {DATE}: law, trials or variance, shift, tau, largest increment in the window\n")
    for r in rows:
        f.write("\t".join([r[0], str(r[1]), str(r[2]), r[3], mp.nstr(r[4], 17)]) + "\n")

with open("gauss.tsv", "w") as f:
    f.write(f"# golden.py, mpmath 60 digits, {DATE}: mu, eps, delta of N(mu,1) against N(0,1)\n")
    for mu in ["0.001", "0.0275", "0.2367", "1", "3.7", "12"]:
        for eps in ["-0.5", "0", "0.003", "0.1", "1", "4", "30"]:
            m, e = mp.mpf(mu), mp.mpf(eps)
            d = mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)
            if d > mp.mpf(10) ** -250:
                f.write(f"{mu}\t{eps}\t{mp.nstr(d, 17)}\n")
