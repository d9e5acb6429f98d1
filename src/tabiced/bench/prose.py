"""What the benchmark page says around its tables."""

from tabiced.bench.adbench import LEAST_ROWS
from tabiced.bench.density import QUERIES, SUITES, TABLES
from tabiced.bench.download import COMMIT
from tabiced.bench.speed import QUERIES as SPEED_QUERIES

_PAPER = SUITES["gaussian"]

INTRODUCTION = """
# Benchmarks

`tabiced bench page` writes this page from the CSV files in `benchmarks/results/`: every number
comes from there. {ours} is `ICED()` with its defaults and the shipped weights (`{shipped}`).
Numbers in *italics* are quoted from the paper; all others were measured with the commands shown.
"""

DENSITY = f"""
## Density estimation

Tables with known log-density: {TABLES} for each column of the tables below, {QUERIES} queries each,
drawn from the paper's prior (preset `paper`), {_PAPER.columns[0]} to {_PAPER.columns[1]} columns
and {_PAPER.rows[0]} to {_PAPER.rows[1]} context rows. They are not the paper's own tables, so its
values give the level only; what counts is the margin over methods that were run on the same tables.
The tables arrive with columns scaled to (-1, 1). `KDE` takes them so, which fits the paper's
values; `KDE-scaled` and all others standardise them first.

```sh
tabiced bench density --methods ours baselines
```
"""

FEW_COLUMNS = """
### Few columns

Pairwise accuracy, and the absolute error of `log_density` in nats: its mean and its median over the
queries of a table, then the mean over the tables. Heavy tails dominate the mean error.
The tables of the full prior are drawn without counted, rounded or zero-inflated columns, and all
rows come from the clean process: no perturbation, contamination, copies or missing cells.
"""

ADBENCH = f"""
## ADBench

Anomaly detection on real tables: AUROC in percent, the mean over the seeds, then over the tables.
The protocol is the paper's, inferred from its values for single tables, which ECOD, COPOD and KNN
reproduce. It draws tables of fewer than {LEAST_ROWS} rows up to that size, with replacement, before
the split, so that copies of query rows lie in the context; further below they stay as they are.
Median ranks are among all methods of a table, quoted ones included.

```sh
tabiced bench download --to FOLDER
tabiced bench adbench --data FOLDER --methods ours baselines foundation
tabiced bench adbench --data FOLDER --methods ours baselines foundation --no-resample
```

`download` fetches the tables from ADBench's repository at commit `{COMMIT[:7]}` and checks the
SHA-256 of each; it is the only command here that downloads. It has no checksum for 3_backdoor:
the table measured here was rebuilt from the one its authors published.
"""

SEEN = """
The network that scores learned from public tables with labels, and under another name the table
behind {tables} was among them. The first three over the other tables: {leaders}.
"""

MACRODATA = """
## Other real tables

A pack of {count} tables of OddBench and OvRBench (the macrOData benchmarks), none of which is in
ADBench: mean AUROC in percent, with a clean and with a contaminated context. Choices about the
training and the parts of a score were made by this pack and by synthetic tables, with a look at
ADBench where they did not decide, so neither of the two is blind to them.

```sh
tabiced bench macrodata --pack macrodata_dev.npz --methods ours baselines
tabiced bench macrodata --pack macrodata_dev.npz --methods ours --options n_views=4
```

`n_views=4`: scores are means over four ways to tell the columns apart.
"""

PARTS = """
### What the parts of a score are worth

The same tables, scores put together otherwise: parts left out (the others in their proportions),
their plain mean, parts alone. Which pairs of columns are drawn is chance that alone moves the means
by up to 0.2.

```sh
tabiced bench parts --pack macrodata_dev.npz
```
"""

CALIBRATION = """
### False alarms

The same {count} tables: which new rows are called unusual when {rates} percent of false alarms are
asked for. Ours by p-values; the others are detectors of PyOD, given the rate as their
`contamination`. With a clean context, normal rows should be called unusual as often as that, and
anomalous ones as often as possible; with a contaminated one less often, since outliers in it come
first.

```sh
tabiced bench calibration --pack macrodata_dev.npz
```
"""

ABLATION = """
## Ablations

Networks trained from scratch for the same time each, with one thing left out or exchanged, and
measured on the tables of the density benchmark, each table in one pass. The training is short, and
the *paper's values* are those of its own networks on its own tables: what can be compared are the
changes against "{baseline}". "{again}" tells how much of them is chance.

```sh
{commands}
```
"""

ABLATION_BUDGET = """
### Trained for {budget}

On {machines}. The means are over {tables} tables of each kind.
"""

SPEED = f"""
## Speed

Time to read a context (rows x columns) and to score {SPEED_QUERIES} queries; for the other methods,
in multiples of ours. What is marked `device=cuda` ran on a GPU, all else on a CPU ("Machines",
below). GMM-BIC chooses among 1 to 10 components here.

```sh
tabiced bench speed --methods ours baselines
tabiced bench speed --methods ours --options device=cuda
```

![Seconds by method](images/runtime.svg)
"""

SPEED_MEMORY = """
Memory in MB: the most that was resident during such a call, less what was before it. Weights that
stay in memory from one call to the next are not in it.
"""

AUGMENTATION = """
## Augmentation

New rows for small classification tables, under the paper's protocol: {new} rows drawn class by
class are added to the real ones, and four classifiers of scikit-learn learn from both. Balanced
accuracy in percent on held-out rows, the mean over {settings} settings (table and number of real
rows), {seeds} seeds and the classifiers, and the gain over learning without new rows. `copies` are
bootstrap rows and `jitter` is noise on them: neither knows anything about the density.

```sh
tabiced bench augmentation --data FOLDER --methods ours baselines
```

The paper's splits cannot be repeated to the row, so compare gains.

![Gain by method](images/augmentation.svg)
"""

AUGMENTATION_SAME = """
Without new rows our values are the paper's to within {points} points on all tables but {other},
which must differ from the one that the paper used. Over the tables that agree:
"""

AUGMENTATION_PARTLY = """
Methods that were measured in some settings and seeds only, beside the others there:
"""

MISSING = """
## What is missing

- ADBench's 9_census, 13_fraud and 36_speech were not at hand. All means, the paper's as well, are
  over the other tables.
- The paper's values for mixtures with flows could not be re-created: its GMM-BIC is lower than a
  correct flow of the stated kind allows.
- TACTIC and TCCM need weights that are not here, and DAGMM is no longer part of PyOD: their columns
  are quoted. So are those of the methods below, which run where their package
  (`tabiced[foundation]`) finds its weights; `tabiced bench --help` says where it looks.
"""
