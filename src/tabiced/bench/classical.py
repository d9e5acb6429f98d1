"""Classical baselines from scikit-learn."""

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from tabiced.bench.methods import Score


def standardised(score: Score, density: bool = False) -> Score:
    """Give `score` columns of mean 0 and standard deviation 1 over the context.

    With `density`, log p(x) = log p(z) - sum_j log s_j puts the result into the units of the input.
    """

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        context, query = context.astype(np.float64), query.astype(np.float64)
        scaler = StandardScaler().fit(context)
        assert scaler.scale_ is not None
        jacobian = np.log(scaler.scale_).sum() if density else 0.0
        return score(scaler.transform(context), scaler.transform(query), seed) - jacobian

    return scored


def min_max(score: Score) -> Score:
    """Give `score` columns that run from 0 to 1 over the context; the query is not clipped."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        context, query = context.astype(np.float64), query.astype(np.float64)
        scaler = MinMaxScaler().fit(context)
        return score(scaler.transform(context), scaler.transform(query), seed)

    return scored


def kth_neighbour(k: int = 5) -> Score:
    """Score by minus the distance to the k-th nearest context row."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        return -_distances(context, query, k)[:, -1]

    return scored


def mean_neighbour(k: int = 5) -> Score:
    """Score by minus the mean distance to the k nearest context rows."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        return -_distances(context, query, k).mean(axis=1)

    return scored


def _distances(context: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    neighbours = NearestNeighbors(n_neighbors=min(k, len(context))).fit(context)
    return neighbours.kneighbors(query)[0]  # (m, k), ascending


def kde(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """Score by a Gaussian kernel density, one bandwidth n^(-1/(d+4)) for all columns (Scott)."""
    return KernelDensity(bandwidth="scott").fit(context).score_samples(query)


def gmm(components: int = 10, floor: float = 1e-6, rows_per_component: int = 0) -> Score:
    """Score by a full-covariance Gaussian mixture; `floor` is added to the variances.

    `rows_per_component` = r lowers the number of components to n / (r (d + 1)), at least 1.
    """

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        n, d = context.shape
        k = components
        if rows_per_component:
            k = int(np.clip(n // (rows_per_component * (d + 1)), 1, components))
        mixture = GaussianMixture(k, reg_covar=floor, random_state=seed).fit(context)
        return mixture.score_samples(query)

    return scored


def gmm_bic(most: int = 10) -> Score:
    """Score by the full-covariance Gaussian mixture of 1..`most` components with the lowest BIC."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        candidates = [
            GaussianMixture(k, random_state=seed).fit(context)
            for k in range(1, min(most, len(context)) + 1)
        ]
        return min(candidates, key=lambda mixture: mixture.bic(context)).score_samples(query)

    return scored


def mahalanobis(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """Score by minus the squared Mahalanobis distance, covariance shrunk as by Ledoit and Wolf."""
    return -LedoitWolf().fit(context).mahalanobis(query)
