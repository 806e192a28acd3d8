"""Golden values of feature.FitPCA: numpy's SVD of the centred rows, in double
precision. Rows are ((7 i^2 + 3 i j + 5 j^3) mod 31 + i (j + 1) mod 5) / 8, exact in
float32. Run: python3 pca.py > pca.tsv"""
import numpy as np

n, d, k = 40, 6, 6
rows = np.array([[((7*i*i + 3*i*j + 5*j**3) % 31 + i*(j + 1) % 5) / 8 for j in range(d)] for i in range(n)])
mean = rows.mean(axis=0)
_, s, vt = np.linalg.svd(rows - mean, full_matrices=False)
print("# pca.py, numpy %s, double precision: the mean, then for each axis its variance and entries" % np.__version__)
print("\t".join("%.15g" % v for v in mean))
for a in range(k):
    axis = vt[a] * np.sign(vt[a][np.argmax(np.abs(vt[a]))])
    print("\t".join("%.15g" % v for v in [s[a]**2 / (n - 1), *axis]))
