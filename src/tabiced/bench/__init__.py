"""Measure the network against real baselines: every claim of the project from one command each.

The modules, in the order in which data pass through them:

- `macrodata`, `adbench`, `density`: the tasks (a context, a query, and what is true of the query)
- `methods`, `classical`, `outlier`, `neural`, `foundation`, `ours`: what is measured, each a
  function (context, query, seed) -> score, **higher = more typical**
- `ablation`: the tasks of `density` for networks trained anew, each without some part
- `metrics`, `results`: a number per task and method, appended to a CSV file that can be resumed
- `download`: the ADBench tables, for those who ask for them
- `summary`, `charts`, `page`: tables, pictures and `docs/benchmarks.md`, from the CSV files alone

Run `python -m tabiced.bench --help`; reading tasks, scoring with the network and the scikit-learn
baselines need nothing beyond the core dependencies.
"""
