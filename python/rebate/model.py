"""The model: what an accelerator would give a service, after Accelerometer; never a bare number.

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
from rebate.sim import Interval

__all__ = ["Outcome", "Projection", "Sensitivity", "evaluate", "project"]

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
    counted: str = "by-work",
    objective: str = "speedup",
    seed: int = 1,
) -> Projection:
    """Projects one case. Parameters are the paper's symbols (its table 5), in cycles but alpha, n and A.

    `threading` is Sync, Sync-OS, Async, Async-distinct or Async-no-response; `strategy` on-chip, off-chip or remote;
    `variant` equations, section-5 or public-program. With `sizes` ((bytes, calls) each), n and alpha are those of all
    calls and only those that pay count: `counted` is by-work or by-calls. `objective` is speedup or latency. ValueError
    names the field and its valid range.
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
    """One per query and device: `speedup`, `latency_reduction`, `break_even_bytes`, `offloads`, `parameters`, `limits`
    and more. A number that is infinite is None."""
    profile: dict[str, Any] | None
    """The categories of the CPU profile, where the parameters come from one."""
    left_out: tuple[str, ...]
    """What too little is known of, and why."""


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
    """Does what `rebate model` does, with the same words.

    The parameters come from exactly one of `file` (TOML, the public Accelerometer program's nine lines, or the name of
    a compiled-in spec), `profile` (a CPU profile; `kernel` names the category to accelerate) and `scheduler` (the gRPC
    address of a live one, asked for its last `last_s` seconds). `devices` are device profiles whose costs are used;
    `all` is every one that has the op. ValueError says what the caller can fix, RuntimeError what the scheduler lacks.
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
