"""Training tables: random tables with the exact log-density of every query row."""

from tabiced.prior import (  # noqa: F401  (importing a module makes its ingredients known)
    atoms,
    base_perturbation,
    columns,
    contamination,
    flows,
    marginals,
    mixture,
    numbers,
    perturbation,
    pointwise,
    sampling,
    structural,
)
from tabiced.prior.ingredient import ingredients
from tabiced.prior.prior import Prior, Tables

__all__ = ["Prior", "Tables", "ingredients"]
