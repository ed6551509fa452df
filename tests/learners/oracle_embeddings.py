"""The embeddings of Gong and Lazebnik, CVPR 2011, section 3.2.1, slowly and in float64: loops over directions
and bins, and an eigenvalue problem that knows nothing of symmetry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Kernel = Callable[[float, float], float]

BINS = 50
FLOOR = 0.01


def principal_directions(sample: Doubles, count: int) -> Doubles:
    """Eigenvectors of the covariance, largest first, [d, count]."""
    _, vectors = np.linalg.eigh(np.cov(sample.T))
    return vectors[:, ::-1][:, :count]


def density(line: Doubles) -> Doubles:
    """The histogram of a direction between its ends; an empty bin counts as a hundredth of a uniform one."""
    low, high = line.min(), line.max()
    counts = np.zeros(BINS)
    for value in line:
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1)] += 1
    shares = np.maximum(counts / len(line), FLOOR / BINS)
    return shares / shares.sum()


def eigenfunctions(line: Doubles, P: Doubles, width: float, count: int) -> tuple[Doubles, Doubles, Doubles]:
    """Bin centres [50], the smallest eigenvalues but that of the constant [count] and their functions at the
    centres [50, count], of mean square 1 under P: (D1 - P K P) f = lambda P D2 f."""
    low, high = line.min(), line.max()
    centres = np.array([low + (high - low) * (i + 0.5) / BINS for i in range(BINS)])
    K = np.array([[np.exp(-((a - b) ** 2) / (2 * width**2)) for b in centres] for a in centres])
    PKP, PK = np.diag(P) @ K @ np.diag(P), np.diag(P) @ K
    D1, D2 = np.diag(PKP.sum(axis=0)), np.diag(PK.sum(axis=0))
    values, vectors = np.linalg.eig(np.linalg.inv(np.diag(P) @ D2) @ (D1 - PKP))
    order = np.argsort(values.real)[1 : 1 + count]
    f = vectors.real[:, order]
    return centres, values.real[order], f / np.sqrt(P @ f**2)


def read_off(values: Doubles, centres: Doubles, f: Doubles) -> Doubles:
    """Linear interpolation between the centres, the ends beyond them."""
    return np.array([np.interp(value, centres, f) for value in values])


def pcalap(sample: Doubles, x: Doubles, directions: int, count: int, width: float | None = None) -> Doubles:
    """[n, directions count]; without a width it is 0.2 of the widest direction's range."""
    R, mean = principal_directions(sample, directions), sample.mean(axis=0)
    lines = (sample - mean) @ R
    if width is None:
        width = 0.2 * max(line.max() - line.min() for line in lines.T)
    columns = []
    for line, new in zip(lines.T, ((x - mean) @ R).T, strict=True):
        centres, _, f = eigenfunctions(line, density(line), width, count)
        columns += [read_off(new, centres, one) for one in f.T]
    return np.array(columns).T


def spectroscopy(line: Doubles) -> float:
    """The width within whose 1.96-fold 95 % of the points have 5 % of all."""
    near = [np.quantile([abs(a - b) for b in line], 0.05) for a in line]
    return float(np.quantile(near, 0.95) / 1.959963984540054)


def rplap(sample: Doubles, x: Doubles, R: Doubles, count: int) -> Doubles:
    """Along given directions, with the uniform density."""
    mean, columns = sample.mean(axis=0), []
    for line, new in zip(((sample - mean) @ R).T, ((x - mean) @ R).T, strict=True):
        centres, _, f = eigenfunctions(line, np.full(BINS, 1 / BINS), spectroscopy(line), count)
        columns += [read_off(new, centres, one) for one in f.T]
    return np.array(columns).T


def addkpca_product(landmarks: Doubles, x: Doubles, z: Doubles, k: Kernel, count: int) -> Doubles:
    """sum over columns of k(x, landmarks) (K of its `count` largest eigenvalues)^+ k(landmarks, z)."""
    total = np.zeros((len(x), len(z)))
    for own, left, right in zip(landmarks.T, x.T, z.T, strict=True):
        values, U = np.linalg.eigh([[k(a, b) for b in own] for a in own])
        kept = slice(len(values) - count, None)
        inverse = U[:, kept] @ np.diag(1 / values[kept]) @ U[:, kept].T
        total += (
            np.array([[k(a, b) for b in own] for a in left])
            @ inverse
            @ np.array([[k(a, b) for b in own] for a in right]).T
        )
    return total


def laplacian_nystroem(K: Doubles, new: Doubles, count: int) -> Doubles:
    """Eigenvectors of I - D^(-1/2) K D^(-1/2) after the first, continued to rows with the kernel values `new`
    [n, L]: f(x) = sum_l k(x, l) u_l / ((1 - mu) sqrt(d(x) d(l))), mu the Laplacian's eigenvalue."""
    degree = K.sum(axis=1)
    L = np.eye(len(K)) - K / np.sqrt(np.outer(degree, degree))
    mu, U = np.linalg.eigh(L)
    columns = []
    for m, u in zip(mu[1 : 1 + count], U.T[1 : 1 + count], strict=True):
        columns.append([
            sum(row[l] * u[l] / ((1 - m) * np.sqrt(row.sum() * degree[l])) for l in range(len(K)))
            for row in new
        ])  # fmt: skip
    return np.array(columns).T
