"""The expansion of seeds, written apart from the Go code, with Python's standard library only.

    python3 expand.py table   > ../quantile.bin   the table of the normal quantile (16,384 bytes)
    python3 expand.py vectors > vectors.json      known answers; reads ../quantile.bin

The arithmetic of the table has 60 digits; docs/SPEC.md says what both files mean.
"""

import hashlib
import json
import os
import struct
import sys
from decimal import Decimal as D, getcontext
from statistics import NormalDist

getcontext().prec = 60
PI = D("3.14159265358979323846264338327950288419716939937510582097494459")

# --- the table -------------------------------------------------------------------------------


def density(z):
    return (-z * z / 2).exp() / (2 * PI).sqrt()


def tail(z):
    """P[Z > z] for z >= 0: 1/2 - density * (z + z^3/3 + z^5/15 + ...)."""
    term = total = z
    k = 1
    while term > D("1e-55"):
        k += 2
        term = term * z * z / k
        total += term
    return D("0.5") - density(z) * total


def quantile(p):
    """z >= 0 with P[Z > z] = p, by Newton from 15 digits."""
    z = D(-NormalDist().inv_cdf(float(p)))
    for _ in range(3):
        z += (tail(z) - p) / density(z)
    return z


def nearest(v):
    return int(v.to_integral_value())


def row(block, k):
    """The cubic of the row, by interpolation at the Chebyshev nodes."""
    step = D(2) ** (57 - min(block, 30)) / D(2) ** 64
    start = step * (k if block == 31 else 32 + k)
    if start == 0:
        # The mean of Z beyond the quantile of 2^-37.
        z = quantile(step)
        return [nearest(density(z) / step * 2**28), 0, 0, 0]
    r2 = D(2).sqrt()
    c1, c3 = (2 + r2).sqrt() / 2, (2 - r2).sqrt() / 2  # cos(pi/8), cos(3 pi/8)
    nodes = [c1, c3, -c3, -c1]
    f = [quantile(start + step * (1 + n) / 2) for n in nodes]
    cheb = [sum(f) / 4]
    cheb.append(sum(a * n for a, n in zip(f, nodes)) / 2)
    cheb.append(sum(a * (2 * n * n - 1) for a, n in zip(f, nodes)) / 2)
    cheb.append(sum(a * (4 * n**3 - 3 * n) for a, n in zip(f, nodes)) / 2)
    a = [cheb[0] - cheb[2], cheb[1] - 3 * cheb[3], 2 * cheb[2], 4 * cheb[3]]
    # Each product is rounded down later; a half more makes up for it.
    half = [D("0.5"), D("0.5"), D("0.5"), D(0)]
    return [nearest(v * 2 ** (28 + i) + h) for i, (v, h) in enumerate(zip(a, half))]


def table():
    return b"".join(struct.pack("<4i", *row(e, k)) for e in range(32) for k in range(32))


# --- AES-128 in counter mode (FIPS 197, SP 800-38A) ------------------------------------------


def gmul(a, b):
    out = 0
    while b:
        if b & 1:
            out ^= a
        a = a << 1 ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return out


def sbox():
    box = [0x63] * 256
    for a in range(1, 256):
        b = next(b for b in range(1, 256) if gmul(a, b) == 1)
        s = b
        for i in range(1, 5):
            s ^= (b << i | b >> (8 - i)) & 255
        box[a] = s ^ 0x63
    return box


SBOX = sbox()
DOUBLE = [gmul(a, 2) for a in range(256)]
SHIFT = [(i + 4 * (i % 4)) % 16 for i in range(16)]


def schedule(key):
    w = [list(key[4 * i : 4 * i + 4]) for i in range(4)]
    rcon = 1
    for i in range(4, 44):
        t = list(w[i - 1])
        if i % 4 == 0:
            t = [SBOX[b] for b in t[1:] + t[:1]]
            t[0] ^= rcon
            rcon = DOUBLE[rcon]
        w.append([x ^ y for x, y in zip(w[i - 4], t)])
    return [sum(w[4 * r : 4 * r + 4], []) for r in range(11)]


def encrypt(keys, block):
    s = [b ^ k for b, k in zip(block, keys[0])]
    for r in range(1, 11):
        s = [SBOX[s[i]] for i in SHIFT]
        if r < 10:
            out = []
            for c in range(0, 16, 4):
                a = s[c : c + 4]
                every = a[0] ^ a[1] ^ a[2] ^ a[3]
                out += [a[i] ^ every ^ DOUBLE[a[i] ^ a[(i + 1) % 4]] for i in range(4)]
            s = out
        s = [b ^ k for b, k in zip(s, keys[r])]
    return bytes(s)


def stream(key, counter, size):
    keys = schedule(key)
    out = b""
    n = int.from_bytes(counter, "big")
    while len(out) < size:
        out += encrypt(keys, (n % 2**128).to_bytes(16, "big"))
        n += 1
    return out[:size]


# --- the expansion ---------------------------------------------------------------------------


def value(rows, word):
    v = word % 2**63
    block = 0
    while block < 31 and v < 2 ** (62 - block):
        block += 1
    r = (v << min(block, 30)) % 2**62 >> 30 if block < 31 else v
    c0, c1, c2, c3 = rows[32 * block + (r >> 27)]
    t = (r % 2**27) * 32 - 2**31
    y = c2 + (c3 * t >> 32)
    y = c1 + (y * t >> 32)
    y = c0 + (y * t >> 32)
    return -y if word >> 63 else y


def expand(rows, seed, round_key, dim):
    key = bytes(a ^ b for a, b in zip(seed, round_key[16:]))
    data = stream(key, round_key[:16], 8 * dim)
    return [value(rows, w) for w in struct.unpack("<%dQ" % dim, data)]


def vectors():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "quantile.bin"), "rb") as f:
        raw = f.read()
    rows = [struct.unpack_from("<4i", raw, 16 * i) for i in range(1024)]
    # FIPS 197, appendix B.
    key, plain = "2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734"
    assert encrypt(schedule(bytes.fromhex(key)), bytes.fromhex(plain)).hex() == "3925841d02dc09fbdc118597196a0b32"
    words = [0, 1, 2**31, 2**32 - 1, 2**32, 2**33 - 1, 2**33, 2**61, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
    words += [struct.unpack("<Q", hashlib.sha256(b"word %d" % i).digest()[:8])[0] >> i for i in range(64)]
    cases = []
    named = lambda name, size: hashlib.sha256(name.encode()).digest()[:size]
    for seed, round_key, dim in [
        (bytes(16), bytes(32), 1),
        (bytes(16), bytes(32), 8),
        (bytes(range(16)), bytes(32), 9),
        (bytes(range(16)), bytes(range(32)), 7),
        (named("seed", 16), named("round", 32), 1930),
        (named("seed", 16), b"\xff" * 32, 1931),  # the counter wraps
        (named("other seed", 16), named("round", 32), 13706),
    ]:
        v = expand(rows, seed, round_key, dim)
        cases.append({
            "seed": seed.hex(), "round": round_key.hex(), "dim": dim,
            "first": v[:4], "last": v[-4:],
            "sha256": hashlib.sha256(struct.pack("<%di" % dim, *v)).hexdigest(),
        })
    return {
        "table": hashlib.sha256(raw).hexdigest(),
        "words": [{"word": "%016x" % w, "value": value(rows, w)} for w in words],
        "expansions": cases,
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        sys.stdout.buffer.write(table())
    elif sys.argv[1:] == ["vectors"]:
        print(json.dumps(vectors(), indent=1))
    else:
        sys.exit(__doc__)
