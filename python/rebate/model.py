"""The model: what an accelerator would give a service, after Accelerometer; never a bare number.

>>> case = project(C=2.0e9, alpha=(0.14, 0.165844, 0.19), n=298_951, o0=10, L=3, A=6,
...                threading="Sync", strategy="on-chip")
>>> case.speedup.value
1.1577560096625769
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebate import _rebate
from rebate.sim import Interval

__all__ = ["Projection", "Sensitivity", "project"]

Stated = float | tuple[float, float, float]
"""A value, or (low, stated, high): a 95 % interval around it."""


@dataclass(frozen=True)
class Sensitivity:
    """How much the speedup hangs on one parameter."""

    symbol: str
    variance_share: float
    """Its share of the variance, by its own uncertainty."""
    elasticity: float
    """Percent of change of the speedup per percent of change of the parameter."""


@dataclass(frozen=True)
class Projection:
    """The model's answer, each estimate with the interval that its inputs' uncertainty gives it."""

    speedup: Interval
    """C / C_S: throughput with the accelerator over throughput without."""
    latency_reduction: Interval | None
    """C / C_L; none under the public program's reading."""
    offloads: Interval
    """Offloads that count (n)."""
    alpha: Interval
    """The fraction of C that they take."""
    break_even_bytes: Interval | None
    """From which size on an offload pays; infinite where none does."""
    sensitivity: tuple[Sensitivity, ...]
    """The parameter to measure better first."""
    limits: tuple[str, ...]
    """What the answer leaves out or presumes."""


def project(
    *,
    C: Stated,
    alpha: Stated,
    n: Stated,
    A: Stated,
    o0: Stated = 0.0,
    Q: Stated = 0.0,
    L: Stated = 0.0,
    o1: Stated = 0.0,
    threading: str = "Sync",
    strategy: str = "off-chip",
    variant: str = "equations",
    awaits_transfer: bool | None = None,
    Cb: Stated | None = None,
    beta: float = 1.0,
    sizes: Iterable[tuple[int, float]] | None = None,
    counted: str = "work",
    objective: str = "speedup",
    seed: int = 1,
) -> Projection:
    """Projects one case. Parameters are the paper's symbols (its table 5), in cycles but alpha, n and A.

    `threading` is Sync, Sync-OS, Async, Async-distinct or Async-no-response; `strategy` on-chip, off-chip or remote;
    `variant` equations, section-5 or public-program. With `sizes` ((bytes, calls) each), n and alpha are those of all
    calls and only those that pay count, `counted` by work or by calls. ValueError names the field and its valid range.
    """
    found = _rebate.project(
        [C, alpha, n, o0, Q, L, o1, A],
        threading=threading,
        strategy=strategy,
        variant=variant,
        awaits_transfer=awaits_transfer,
        cycles_per_byte=Cb,
        beta=beta,
        sizes=None if sizes is None else list(sizes),
        counted=counted,
        objective=objective,
        seed=seed,
    )

    def maybe(estimate: tuple[float, float, float] | None) -> Interval | None:
        return None if estimate is None else Interval(*estimate)

    return Projection(
        speedup=Interval(*found["speedup"]),
        latency_reduction=maybe(found["latency_reduction"]),
        offloads=Interval(*found["offloads"]),
        alpha=Interval(*found["alpha"]),
        break_even_bytes=maybe(found["break_even_bytes"]),
        sensitivity=tuple(Sensitivity(*one) for one in found["sensitivity"]),
        limits=tuple(found["limits"]),
    )
