"""Pretrained models of other projects: TabICL, TabPFN and TabEBM, where their weights are at hand.

Nothing is downloaded: a model runs if its package is installed and the weights that package asks
for are in the package's own cache or in the folder that a variable names (`FOLDERS`). Otherwise
`unavailable` says why not, and the benchmarks store that reason for the page.

All scores are logarithms. Columns are given as they are; which of them are categories is left to
each package.
"""

import importlib.util
import os
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import torch

from tabiced._extras import extra
from tabiced.bench.classical import standardised
from tabiced.bench.methods import Method, Score
from tabiced.bench.results import Results

PACKAGES = {
    "TabICL": ("tabicl",),
    "TabPFN": ("tabpfn", "tabpfn_extensions"),
    "TabEBM": ("tabpfn", "tabebm"),
}
FOLDERS = {  # variables that name a folder with the weights
    "TabICL": "TABICED_TABICL_WEIGHTS",
    "TabPFN": "TABICED_TABPFN_WEIGHTS",
    "TabEBM": "TABICED_TABPFN_WEIGHTS",
}
NAMES = tuple(PACKAGES)
# The packages' own defaults: passes for one column, and orders of the columns.
PASSES: dict[str, object] = {"TabICL": 8, "TabPFN": "auto"}
ORDERS = {"TabICL": 4, "TabPFN": 10}
LOWEST = torch.finfo(torch.float32).min  # for a query whose log-density is too low to be told

T = TypeVar("T")


class Unavailable(Exception):
    """A model that cannot run here; the text says what is missing."""


def method(name: str, device: str = "cpu") -> Method:
    """Return one of the models, or raise `Unavailable`."""
    plain = {"TabICL": _tabicl, "TabPFN": _tabpfn, "TabEBM": _tabebm}[name](_weights(name), device)

    def score(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        try:
            return plain(context, query, seed)
        except RuntimeError as error:  # a table it cannot take; in our own code it would be a bug
            raise ValueError(str(error)) from error

    # An energy has no units; the others estimate log p(x).
    return Method(name, score, None if name == "TabEBM" else score)


def unavailable(name: str) -> str:
    """Return why a model cannot run here, or nothing if it can."""
    try:
        _weights(name)
    except Unavailable as reason:
        return str(reason)
    return ""


def open_reasons(folder: str | os.PathLike[str]) -> Results:
    """Return the stored reasons of the models that could not run, beside the results."""
    return Results(Path(folder) / "unavailable.csv", ("benchmark", "method"), ("reason",))


def choose(names: Sequence[str], device: str, benchmark: str, folder: Path) -> list[Method]:
    """Return the models that can run; store and print why the others cannot."""
    return runnable({name: partial(method, name, device) for name in names}, benchmark, folder)


def runnable(makers: Mapping[str, Callable[[], T]], benchmark: str, folder: Path) -> list[T]:
    """Return what can be made; store and print the reasons of those that raise `Unavailable`."""
    chosen, reasons = [], open_reasons(folder)
    for name, make in makers.items():
        key = {"benchmark": benchmark, "method": name}
        try:
            chosen.append(make())
        except Unavailable as reason:
            reasons.add({**key, "reason": str(reason)})
            reasons.sort()
            print(f"{name} cannot run: {reason}", flush=True)
        else:
            reasons.discard(lambda row, key=key: all(row[k] == v for k, v in key.items()))  # type: ignore[misc]
    return chosen


def _weights(name: str) -> dict[str, Path]:
    """Return {kind: file} of the weights a model needs, or raise `Unavailable`."""
    absent = [p for p in PACKAGES[name] if importlib.util.find_spec(p) is None]
    if absent:
        raise Unavailable(f"package not installed ({', '.join(absent)})")
    # The files are looked for below; these keep the packages from asking their servers anyway.
    os.environ.update({"HF_HUB_OFFLINE": "1", "TABPFN_DISABLE_TELEMETRY": "1"})
    finders = {"TabICL": _tabicl_cache, "TabPFN": _tabpfn_cache, "TabEBM": _tabebm_cache}
    try:
        cached = finders[name]()
    except ImportError as error:
        raise Unavailable(f"package cannot be imported ({error})") from error
    folder = os.environ.get(FOLDERS[name])
    files = {kind: Path(folder) / p.name if folder else p for kind, p in cached.items()}
    missing = sorted({path.name for path in files.values() if not path.is_file()})
    if missing:
        raise Unavailable(f"weights not available ({', '.join(missing)})")
    return files


def _tabicl_cache() -> dict[str, Path]:
    from huggingface_hub import try_to_load_from_cache
    from tabicl import TabICLClassifier, TabICLRegressor

    files = {}
    for kind, model in (("classifier", TabICLClassifier), ("regressor", TabICLRegressor)):
        name = model().checkpoint_version
        found = try_to_load_from_cache("jingang/TabICL", name)
        files[kind] = Path(found) if isinstance(found, str) else Path(name)
    return files


def _tabpfn_cache() -> dict[str, Path]:
    from tabpfn.model_loading import resolve_model_path
    from tabpfn.settings import settings

    version = settings.tabpfn.model_version.value  # TABPFN_MODEL_VERSION, or the newest
    return {
        kind: resolve_model_path(None, which=kind, version=version)[0][0]
        for kind in ("classifier", "regressor")
    }


def _tabebm_cache() -> dict[str, Path]:
    from tabpfn.model_loading import resolve_model_path

    # Version 2 is TabEBM's. From version 3 on, outputs are normalised: every energy would be 0.
    return {"classifier": resolve_model_path(None, which="classifier", version="v2")[0][0]}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, which these packages draw from, and put them back."""
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _finite(logarithms: np.ndarray) -> np.ndarray:
    values = np.asarray(logarithms, dtype=np.float64)
    return np.nan_to_num(values, nan=LOWEST, neginf=LOWEST)


def _tabicl(files: dict[str, Path], device: str) -> Score:
    """Score by TabICL's chain rule: the mean log-density over some orders of the columns."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        with extra("foundation"):
            from tabicl import TabICLUnsupervised

        class Local(TabICLUnsupervised):  # the package takes one path for both of its networks
            def _load_shared_model(self, estimator_cls: type) -> Any:
                kind = "classifier" if "Classifier" in estimator_cls.__name__ else "regressor"
                self.estimator_params = {"model_path": files[kind], "allow_auto_download": False}
                return super()._load_shared_model(estimator_cls)

        kept: list[np.ndarray] = []
        with _seeded(seed):
            model = Local(PASSES["TabICL"], random_state=seed, device=device).fit(context)
            plain = model._compute_log_density

            def keep(*arguments: Any) -> np.ndarray:
                kept.append(plain(*arguments))
                return kept[-1]

            # `score_samples` returns the exponential, 0 for many columns: take what goes into it.
            with mock.patch.object(model, "_compute_log_density", keep):
                model.score_samples(query, n_permutations=ORDERS["TabICL"])
        return np.mean([_finite(logarithm) for logarithm in kept], axis=0)

    return scored


def _tabpfn(files: dict[str, Path], device: str) -> Score:
    """Score by the chain rule of TabPFN's extension: log of the mean density over some orders."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        with extra("foundation"):
            from tabpfn import TabPFNClassifier, TabPFNRegressor
            from tabpfn_extensions.unsupervised import TabPFNUnsupervisedModel
            from tabpfn_extensions.utils import infer_categorical_features
        same = {**_tabpfn_options(device, seed), "n_estimators": PASSES["TabPFN"]}
        model = TabPFNUnsupervisedModel(
            TabPFNClassifier(model_path=files["classifier"], **same),
            TabPFNRegressor(model_path=files["regressor"], **same),
        )
        varied = np.ptp(context, axis=0) > 0  # it refuses to condition on constants alone
        context, query = context[:, varied], query[:, varied]
        columns = infer_categorical_features(context.astype(np.float32))
        context, query = _coded(context, query, columns)
        model.set_categorical_features(columns)
        decide = model.use_classifier_

        def by_context(column: int, _: Any) -> bool:  # the query may have other levels
            return decide(column, model.X_[:, column])

        with mock.patch.object(model, "use_classifier_", by_context), _seeded(seed):
            model.fit(context)
            return _finite(model.outliers(query, n_permutations=ORDERS["TabPFN"]).numpy())

    return scored


def _tabpfn_options(device: str, seed: int) -> dict[str, Any]:
    return {"device": device, "random_state": seed, "ignore_pretraining_limits": True}


def _coded(
    context: np.ndarray, query: np.ndarray, columns: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Number the levels of these columns 0, 1, ..., as TabPFN's extension expects.

    A level that the context lacks gets the next number, which it takes for unknown.
    """
    context, query = context.astype(np.float32), query.astype(np.float32)
    for column in columns:
        levels = np.unique(context[:, column])
        places = np.searchsorted(levels, query[:, column]).clip(max=len(levels) - 1)
        known = levels[places] == query[:, column]
        query[:, column] = np.where(known, places, len(levels))
        context[:, column] = np.searchsorted(levels, context[:, column])
    return context, query


def _tabebm(files: dict[str, Path], device: str) -> Score:
    """Score by minus TabEBM's energy, log sum_k exp f_k(x).

    f are the logits of TabPFN, one pass without preprocessing, asked to tell the standardised
    context from TabEBM's corners far outside.
    """

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        if context.shape[1] < 2:
            raise ValueError("TabEBM needs two columns")  # it would look for four corners for ever
        with extra("foundation"):
            from tabpfn import TabPFNClassifier
            from tabpfn.preprocessing.configs import PreprocessorConfig

            ebm = _tabebm_class()
        plain = {
            "FINGERPRINT_FEATURE": False,
            "FEATURE_SHIFT_METHOD": None,
            "CLASS_SHIFT_METHOD": None,
            "PREPROCESS_TRANSFORMS": [PreprocessorConfig(name="none")],
        }
        with _seeded(seed):
            rows, outside = ebm.add_surrogate_negative_samples(context.astype(np.float64))
            model = TabPFNClassifier(
                model_path=files["classifier"],
                n_estimators=1,
                inference_config=plain,
                **_tabpfn_options(device, seed),
            ).fit(rows, outside)
            logits = torch.as_tensor(model.predict_logits(query))
        return _finite(-ebm.compute_energy(logits).numpy())

    return standardised(scored)


def _tabebm_class() -> Any:
    """Import TabEBM, which asks for names that TabPFN has moved, and needs none of them here."""
    import tabpfn.utils

    config = types.ModuleType("tabpfn.config")
    vars(config).update(ModelInterfaceConfig=None, PreprocessorConfig=None)
    with (
        mock.patch.dict(sys.modules, {"tabpfn.config": config}),
        mock.patch.object(tabpfn.utils, "meta_dataset_collator", None, create=True),
    ):
        from tabebm.TabEBM import TabEBM
    return TabEBM
