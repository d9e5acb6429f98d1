"""Take, stack and label tables of any kind without changing the kind."""

from __future__ import annotations

from typing import Any

import numpy as np


def stack(*tables: Any, rows: np.ndarray | None = None) -> Any:
    """Return tables of one kind below each other; of a single one, only these rows if given."""
    first = tables[0]
    module = type(first).__module__.partition(".")[0]
    if module == "pandas":
        import pandas as pd

        if rows is not None:
            return first.iloc[rows]
        return pd.concat(tables, ignore_index=True)
    if module == "polars":
        import polars as pl

        return first[rows] if rows is not None else pl.concat(tables)
    if module == "pyarrow":
        import pyarrow as pa

        return first.take(rows) if rows is not None else pa.concat_tables(tables)
    arrays = [table if hasattr(table, "dtype") else _array_of(table) for table in tables]
    if rows is not None:
        return arrays[0][rows]
    return np.concatenate(arrays)


def _array_of(table: Any) -> np.ndarray:
    array = np.asarray(table)
    return np.array(table, dtype=object) if array.dtype.kind in "US" else array


def as_labels(y: Any, rows: int) -> np.ndarray:
    """Return labels (rows,) as an array, or say what is wrong with them."""
    labels = np.asarray(y.to_numpy(zero_copy_only=False) if _is_arrow(y) else y)
    if labels.ndim != 1:
        raise ValueError(
            f"y must be one-dimensional, one label a row; its shape is {labels.shape}."
        )
    if len(labels) != rows:
        raise ValueError(f"X has {rows} rows, but y has {len(labels)} labels.")
    missing = [i for i, label in enumerate(labels.tolist()) if label is None or label != label]
    if missing:
        raise ValueError(
            f"y has no label in row {missing[0]} ({len(missing)} in all): drop these rows, or "
            "make them a class of their own."
        )
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        labels = labels.astype(str)
    return labels


def labels_like(labels: np.ndarray, y: Any) -> Any:
    """Return labels as the kind, name and type of y."""
    module = type(y).__module__.partition(".")[0]
    if module == "pandas":
        import pandas as pd

        return pd.Series(labels.tolist(), name=y.name).astype(y.dtype)
    if module == "polars":
        import polars as pl

        return pl.Series(y.name, labels.tolist(), dtype=y.dtype)
    if _is_arrow(y):
        import pyarrow as pa

        return pa.array(labels.tolist(), y.type)
    return labels.astype(y.dtype) if hasattr(y, "dtype") else labels


def _is_arrow(y: Any) -> bool:
    return type(y).__module__.startswith("pyarrow")
