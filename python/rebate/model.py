"""The model: computes with Accelerometer what an accelerator would gain a service. Every estimate has an interval.

Examples:
  >>> case = project(C=2.0e9, alpha=(0.14, 0.165844, 0.19), n=298_951, o0=10, L=3, A=6,
  ...                threading="Sync", strategy="on-chip")
  >>> case.speedup.value
  1.1577560096625769
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from rebate import _rebate
from rebate.sim import Interval, html_table, interval_text

__all__ = ["Outcome", "Projection", "Sensitivity", "evaluate", "project"]

Stated = float | tuple[float, float, float]
"""A value, or (low, stated, high), where low and high are the ends of a 95 % interval."""


@dataclass(frozen=True)
class Sensitivity:
    """The dependence of the speedup on one parameter."""

    symbol: str
    variance_share: float
    """The share of the speedup's variance that comes from the parameter's own uncertainty."""
    elasticity: float
    """The change of the speedup (%) for a change of the parameter by 1 %."""


@dataclass(frozen=True)
class Projection:
    """The model's answer. Each estimate has an interval, which follows from the uncertainty of the inputs."""

    speedup: Interval
    """C / C_S: the throughput with the accelerator divided by the throughput without."""
    latency_reduction: Interval | None
    """C / C_L. None under the public program's reading."""
    offloads: Interval
    """The number of offloads that count (n)."""
    alpha: Interval
    """The fraction of C that these offloads take."""
    break_even_bytes: Interval | None
    """The size from which an offload pays. It is infinite if no size pays."""
    sensitivity: tuple[Sensitivity, ...]
    """The sensitivities. The parameter whose better measurement helps most comes first."""
    limits: tuple[str, ...]
    """The facts that the answer ignores or assumes."""

    def _repr_html_(self) -> str:
        """Returns a table of the estimates with their intervals for a notebook."""
        estimates = ("speedup", "latency_reduction", "offloads", "alpha", "break_even_bytes")
        rows = [[name.replace("_", " "), interval_text(getattr(self, name))] for name in estimates]
        return html_table(["estimate", "value (95 % interval)"], rows)


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
    counted: str = "by-work",
    objective: str = "speedup",
    seed: int = 1,
) -> Projection:
    """Projects one case. The parameters are the paper's symbols (its table 5), in cycles except alpha, n and A.

    `threading` is Sync, Sync-OS, Async, Async-distinct or Async-no-response. `strategy` is on-chip, off-chip or remote.
    `variant` is equations, section-5 or public-program. With `sizes`, each (bytes, calls), n and alpha describe all
    calls, and only the calls that pay are offloaded. `counted` is then by-work or by-calls. `objective` is speedup or
    latency. A ValueError names the field and its valid range.
    """
    if counted in _OLD_COUNTED:
        warnings.warn(
            f"counted={counted!r} is now {_OLD_COUNTED[counted]!r}", DeprecationWarning, stacklevel=2
        )
        counted = _OLD_COUNTED[counted]
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


_OLD_COUNTED = {"work": "by-work", "calls": "by-calls"}


@dataclass(frozen=True)
class Outcome:
    """The planner's answers, with the keys of `rebate model --json`."""

    answers: tuple[dict[str, Any], ...]
    """One answer per query and device, with `speedup`, `latency_reduction`, `break_even_bytes`, `offloads`,
    `parameters`, `limits` and more. A number that is infinite is None."""
    profile: dict[str, Any] | None
    """The categories of the CPU profile, if the parameters come from a profile."""
    left_out: tuple[str, ...]
    """The queries and devices for which too little is known, each with the reason."""


def evaluate(
    file: str | PathLike[str] | None = None,
    *,
    profile: str | PathLike[str] | None = None,
    scheduler: str | None = None,
    kernel: str | None = None,
    rules: str | PathLike[str] | None = None,
    sizes: str | PathLike[str] | None = None,
    devices: Sequence[str] = (),
    op: str | None = None,
    cycles: float | None = None,
    calls: float | None = None,
    clock_ghz: float | None = None,
    threading: str | None = None,
    strategy: str | None = None,
    variant: str | None = None,
    last_s: float = 60.0,
    seed: int = 1,
) -> Outcome:
    """Answers the same queries as `rebate model`, with the same words.

    The parameters come from exactly one of `file` (TOML, the public Accelerometer program's nine lines, or the name of
    a compiled-in spec), `profile` (a CPU profile, in which `kernel` names the category to accelerate) and `scheduler`
    (the gRPC address of a running scheduler, which is queried for its last `last_s` seconds). `devices` are the device
    profiles whose costs are used. `all` stands for every profile that has the op. A ValueError states what the caller
    can fix, and a RuntimeError states what the scheduler lacks.
    """
    places = {"file": file, "profile": profile, "scheduler": scheduler}
    given = [(source, place) for source, place in places.items() if place is not None]
    if len(given) != 1:
        names = ", ".join(source for source, _ in given) or "none"
        raise ValueError(f"exactly one of file, profile and scheduler must be given; given: {names}")
    [(source, place)] = given
    text = _rebate.evaluate(
        source,
        fspath(place),
        rules=None if rules is None else fspath(rules),
        kernel=kernel,
        cycles=cycles,
        calls=calls,
        last_s=last_s,
        threading=threading,
        strategy=strategy,
        variant=variant,
        sizes=None if sizes is None else fspath(sizes),
        op=op,
        clock_ghz=clock_ghz,
        devices=list(devices),
        seed=seed,
    )
    found = json.loads(text)
    return Outcome(
        answers=tuple(found["answers"]),
        profile=found.get("profile"),
        left_out=tuple(found.get("left_out", ())),
    )
