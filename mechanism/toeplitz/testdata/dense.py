"""The least rms error of prefix sums that any matrix C allows at squared sensitivity 1, for small
T: golden values for toeplitz. Writes dense.tsv. numpy, double precision.

Minimise tr(A'A M^-1)/T over M = C'C > 0 with u'Mu <= 1 for every u that is +-1 in rounds that
lie at least b apart and 0 elsewhere. The dual is to maximise f(v)^2, f(v) = tr (R H R)^(1/2),
R = (A'A)^(1/2), H = sum v_u u u', over v >= 0 with sum 1; the slope by v_u is u'Mu/2 at
M = R (R H R)^(-1/2) R. Any v gives a lower bound f^2 and the upper bound f max_u u'Mu. Weights are
multiplied by u'Mu/f until both agree to 1e-9.
"""
import itertools
import numpy as np


def patterns(T, b):
    """Maximal sets of rounds at least b apart."""
    def grow(start):
        yield ()
        for t in range(start, T):
            for rest in grow(t + b):
                yield (t,) + rest
    sets = [set(p) for p in grow(0)]
    return [sorted(p) for p in sets if not any(p < q for q in sets)]


def signed(T, b):
    out = []
    for p in patterns(T, b):
        for signs in itertools.product([1, -1], repeat=len(p) - 1):
            u = np.zeros(T)
            u[p] = (1,) + signs
            out.append(u)
    return np.array(out)


def power(S, e):
    w, V = np.linalg.eigh(S)
    return (V * w**e) @ V.T


def dense(T, b):
    A = np.tril(np.ones((T, T)))
    R = power(A.T @ A, .5)
    U = signed(T, b)
    v = np.full(len(U), 1 / len(U))
    best, worst = 0, np.inf
    for _ in range(400000):
        S = R @ (U.T * v @ U) @ R
        f = np.trace(power(S, .5))
        M = R @ power(S, -.5) @ R
        g = np.einsum('ij,jk,ik->i', U, M, U)
        best, worst = max(best, f * f), min(worst, f * g.max())
        if worst <= best * (1 + 1e-9):
            break
        v *= g / f
        v = np.maximum(v, 1e-18)
        v /= v.sum()
    return np.sqrt(best / T), np.sqrt(worst / T)


if __name__ == '__main__':
    with open('dense.tsv', 'w') as out:
        out.write('# dense.py, numpy %s: T, b, rms error at sensitivity 1 (lower bound, upper bound)\n' % np.__version__)
        cases = [(T, b) for T in range(1, 9) for b in range(1, T + 1)]
        for T, b in cases + [(12, 3), (12, 4), (12, 6), (16, 4), (16, 8), (24, 8), (24, 12), (32, 32)]:
            out.write('%d\t%d\t%.12g\t%.12g\n' % (T, b, *dense(T, b)))
