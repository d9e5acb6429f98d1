"""New rows: chains that follow the estimated density, and class-conditional augmentation.

The modules, in the order in which rows pass through them:

- `layout`: encoded rows as the state of chains (numbers, levels, missing cells), and back
- `kernels`: proposals shaped by the context, with their exact correction
- `density`: the network's log-density in nats
- `sampler`: Metropolis' rule and Langevin steps, all chains together
- `rows`: encoded rows back to the kind of table that came in
- `diagnostics`: how the chains went, and whether rows are copies
- `sample`, `augment`: what users call
"""

from tabiced.generate.augment import ICEDAugmenter
from tabiced.generate.diagnostics import Diagnostics
from tabiced.generate.sample import sample_rows
from tabiced.generate.sampler import Langevin, Metropolis

__all__ = ["Diagnostics", "ICEDAugmenter", "Langevin", "Metropolis", "sample_rows"]
