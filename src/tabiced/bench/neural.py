"""Density networks trained anew on each context: flows from zuko and a variational autoencoder.

The paper gives no settings for them; these are common ones, the same for every table: Adam with
weight decay, a tenth of the context held out to choose when to stop.
"""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn

from tabiced._extras import extra
from tabiced.bench.classical import standardised
from tabiced.bench.methods import Score

STEPS, BATCH, RATE, DECAY = 1000, 256, 3e-3, 1e-4
CHECK, PATIENCE = 20, 10  # steps between looks at the held-out rows; looks without a gain
HIDDEN = (64, 64)
TRANSFORMS = {"MAF": 3, "RealNVP": 6}


def maf(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """Score by a masked autoregressive flow of three affine transforms."""
    return _flow_density("MAF", context, query, seed)


def realnvp(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """Score by a flow of six affine couplings; it needs two columns at least."""
    return _flow_density("RealNVP", context, query, seed)


def _flow_density(kind: str, context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    with extra("bench"):
        from zuko import flows

    class Flow(nn.Module):
        def __init__(self, columns: int):
            super().__init__()
            shuffled = {"MAF": {"randperm": True}, "RealNVP": {"randmask": True}}[kind]
            options = {"transforms": TRANSFORMS[kind], "hidden_features": HIDDEN, **shuffled}
            self.flow = getattr(flows, kind)(columns, **options)

        def loss(self, rows: Tensor) -> Tensor:
            return -self.flow().log_prob(rows).mean()

        def log_density(self, rows: Tensor) -> Tensor:
            return self.flow().log_prob(rows)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Flow(context.shape[1])
        return _trained_density(model, context, query)


class Autoencoder(nn.Module):
    """A Gaussian variational autoencoder with one variance per column.

    log p(x) = log E_z~q(z|x) [p(x|z) p(z) / q(z|x)], estimated with `draws` samples.
    """

    def __init__(self, columns: int, latent: int, draws: int = 64):
        super().__init__()
        self.draws = draws
        self.encoder = _perceptron(columns, 2 * latent)
        self.decoder = _perceptron(latent, columns)
        self.log_variance = nn.Parameter(torch.zeros(columns))

    def weights(self, rows: Tensor, draws: int) -> Tensor:
        """Return log p(x|z) + log p(z) - log q(z|x) for `draws` samples: (draws, n)."""
        mean, log_variance = self.encoder(rows).chunk(2, -1)  # n latent
        noise = torch.randn(draws, *mean.shape)
        z = mean + (0.5 * log_variance).exp() * noise  # draws n latent
        decoded = _gaussian(rows, self.decoder(z), self.log_variance)
        return (
            decoded
            + _gaussian(z, torch.zeros(()), torch.zeros(()))
            - _gaussian(z, mean, log_variance)
        )

    def loss(self, rows: Tensor) -> Tensor:
        return -self.weights(rows, 1).mean()

    def log_density(self, rows: Tensor) -> Tensor:
        return torch.logsumexp(self.weights(rows, self.draws), 0) - math.log(self.draws)


def _perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN[0]),
        nn.ReLU(),
        nn.Linear(HIDDEN[0], HIDDEN[1]),
        nn.ReLU(),
        nn.Linear(HIDDEN[1], outputs),
    )


def _gaussian(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the log-density of independent Gaussians, summed over the last axis."""
    square = (x - mean) ** 2 * (-log_variance).exp()
    return -0.5 * (square + log_variance + math.log(2 * math.pi)).sum(-1)


def vae(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
    """Score by a variational autoencoder with half as many latent dimensions as columns."""
    columns = context.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _trained_density(Autoencoder(columns, max(1, columns // 2)), context, query)


def _trained_density(model: nn.Module, context: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Train on nine tenths of the context, stop by the other tenth, return log p of the query."""
    rows = torch.as_tensor(context, dtype=torch.float32)
    rows = rows[torch.randperm(len(rows))]
    held = max(1, len(rows) // 10)
    valid, train = rows[:held], rows[held:]
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    best, best_state, since = math.inf, copy.deepcopy(model.state_dict()), 0
    for step in range(1, STEPS + 1):
        optimiser.zero_grad()
        batch = train[torch.randint(len(train), (min(BATCH, len(train)),))]
        model.loss(batch).backward()  # type: ignore[operator]
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        if step % CHECK:
            continue
        with torch.no_grad():
            loss = -float(model.log_density(valid).mean())  # type: ignore[operator]
        since += 1
        if loss < best:
            best, best_state, since = loss, copy.deepcopy(model.state_dict()), 0
        if since >= PATIENCE:
            break
    model.load_state_dict(best_state)
    with torch.no_grad():
        density = model.log_density(torch.as_tensor(query, dtype=torch.float32))  # type: ignore[operator]
    # A query far outside can overflow float32: it is as untypical as can be told.
    lowest = torch.finfo(torch.float32).min
    return torch.nan_to_num(density, nan=lowest, neginf=lowest).double().numpy()


def neural(name: str) -> Score:
    """Return the scorer of one of MAF, RealNVP and VAE, on standardised columns, in input units."""
    return standardised({"MAF": maf, "RealNVP": realnvp, "VAE": vae}[name], density=True)
