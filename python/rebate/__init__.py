"""A client of the cache, traces, the simulator and the model of Rebate.

Examples:
  >>> from rebate import model, sim, traces
  >>> catalog = traces.Catalog.accelflow()
  >>> results = sim.run("steady", architectures=["relief", "accelflow"])
  >>> results.to_pandas()
"""

from rebate import client, model, sim, traces
from rebate._rebate import __version__

__all__ = ["__version__", "client", "model", "sim", "traces"]
