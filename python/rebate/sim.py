"""The simulator: runs, sweeps of keys, results as rows and frames.

Same seed, same numbers, on any machine and any number of threads. What a run does not bear out is None: an overloaded
architecture has a reason in the place of its times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rebate import _rebate

if TYPE_CHECKING:
    import pandas
    import polars

__all__ = [
    "ALL",
    "COMPARED",
    "SCENARIOS",
    "Interval",
    "Reduction",
    "Results",
    "Run",
    "run",
    "points",
    "sources",
    "sweep",
]

SCENARIOS: tuple[str, ...] = tuple(_rebate.scenarios())
"""The scenarios that are compiled in."""
ALL: tuple[str, ...] = tuple(_rebate.architectures())
"""Every architecture."""
COMPARED: tuple[str, ...] = ("non-acc", "cpu-centric", "relief", "cohort", "accelflow")
"""The five of the paper's figure 11."""


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Reduction:
    """By how much one architecture's times are below another's, as a fraction of the other's, paired by replication."""

    mean: Interval
    p99: Interval | None


@dataclass(frozen=True)
class Run:
    """One architecture at one point of a sweep."""

    spec: str
    set: Mapping[str, str]
    architecture: str
    seed: int
    replications: int
    events: int
    verdict: str
    """steady, window or refused."""
    reason: str | None
    """Why there is no steady state."""
    values: Mapping[tuple[str, str], Interval | None] = field(repr=False)
    """By name (a service, all, or what a fact is called) and metric (mean_ns, p99_ns, fact)."""
    reductions: Mapping[str, Reduction] = field(repr=False)
    """By the other architecture's name."""

    def value(self, name: str = "all", metric: str = "p99_ns") -> Interval | None:
        """One number; KeyError if nothing is called so."""
        return self.values[name, metric]


@dataclass(frozen=True)
class Results:
    """Runs in the order of the points and architectures asked for."""

    runs: tuple[Run, ...]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def run(self, architecture: str, **at: Any) -> Run:
        """The run of an architecture at the point where these keys (dots as underscores twice) have these values."""
        wanted = {key.replace("__", "."): _text(value) for key, value in at.items()}
        found = [
            run
            for run in self.runs
            if run.architecture == architecture
            and all(run.set.get(key) == value for key, value in wanted.items())
        ]
        if len(found) != 1:
            raise KeyError(f"{len(found)} runs of {architecture} with {wanted}")
        return found[0]

    def rows(self) -> list[dict[str, Any]]:
        """One row a number: tidy."""
        return [
            {
                "spec": run.spec,
                **run.set,
                "architecture": run.architecture,
                "seed": run.seed,
                "runs": run.replications,
                "verdict": run.verdict,
                "name": name,
                "metric": metric,
                "value": found and found.value,
                "low": found and found.low,
                "high": found and found.high,
            }
            for run in self.runs
            for (name, metric), found in run.values.items()
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a frame; needs the extra `rebate[pandas]`."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_polars(self) -> polars.DataFrame:
        """The rows as a frame; needs the extra `rebate[polars]`."""
        import polars

        return polars.DataFrame(self.rows(), infer_schema_length=None)


def run(
    spec: str = "steady",
    *,
    set: Mapping[str, Any] | None = None,
    architectures: Sequence[str] = COMPARED,
    seed: int = 1,
    runs: int = 10,
    precision: float | None = None,
    threads: int | None = None,
) -> Results:
    """Simulates a scenario or a specification file under some architectures, all with the same random numbers.

    `set` gives keys other values; `runs` are independent replications (5 to 100); with `precision` there are more, up
    to twenty times as many, until half of every interval is at most that fraction of its value.
    """
    return sweep(
        spec,
        {},
        set=set,
        architectures=architectures,
        seed=seed,
        runs=runs,
        precision=precision,
        threads=threads,
    )


def sweep(
    spec: str,
    values: Mapping[str, Sequence[Any]],
    *,
    set: Mapping[str, Any] | None = None,
    architectures: Sequence[str] = COMPARED,
    seed: int = 1,
    runs: int = 10,
    precision: float | None = None,
    threads: int | None = None,
    ray: bool = False,
) -> Results:
    """Simulates every combination of the keys' values, the last key's changing fastest.

    With `ray`, each point is a task of the Ray cluster that this process is connected to (a local one is started if it
    is not); needs the extra `rebate[ray]`. The numbers are the same. A long sweep that is to keep what it has when it
    is interrupted takes its `points` one by one.
    """
    found = points(
        spec,
        values,
        set=set,
        architectures=architectures,
        seed=seed,
        runs=runs,
        precision=precision,
        threads=threads,
        ray=ray,
    )
    return Results(tuple(itertools.chain(*found)))


def points(
    spec: str,
    values: Mapping[str, Sequence[Any]],
    *,
    set: Mapping[str, Any] | None = None,
    architectures: Sequence[str] = COMPARED,
    seed: int = 1,
    runs: int = 10,
    precision: float | None = None,
    threads: int | None = None,
    ray: bool = False,
) -> Iterator[Results]:
    """As `sweep`, each point's results as soon as it and those before it are done."""
    fixed = {key: _text(value) for key, value in (set or {}).items()}
    texts = [[_text(value) for value in choices] for choices in values.values()]
    chosen = [fixed | dict(zip(values, point)) for point in itertools.product(*texts)]
    _check("seed", seed, 0, 2**64 - 1)
    _check("runs", runs, 0, 2**32 - 1)
    _check("threads", 1 if threads is None else threads, 1, 1024)
    rest = (tuple(architectures), seed, runs, precision)
    if not ray:
        return (Results(_point(spec, at, *rest, threads, None)) for at in chosen)
    return _on_ray(spec, chosen, rest, threads)


def _on_ray(
    spec: str, chosen: Sequence[Mapping[str, str]], rest: tuple[Any, ...], threads: int | None
) -> Iterator[Results]:
    import ray as cluster

    if not cluster.is_initialized():
        cluster.init(log_to_driver=False)
    # A worker may see other files than this process, or none.
    files = _rebate.files(spec)
    # A task has the cores that it is given, no more: by default one.
    task = cluster.remote(_task).options(num_cpus=threads or 1)
    waiting = [task.remote((spec, at, *rest, threads or 1, files)) for at in chosen]
    try:
        for one in waiting:
            yield Results(cluster.get(one))
    finally:
        for one in waiting:
            cluster.cancel(one)


def _task(arguments: tuple[Any, ...]) -> tuple[Run, ...]:
    return _point(*arguments)


def sources(
    spec: str = "steady", set: Mapping[str, Any] | None = None
) -> list[tuple[str, str, str, str]]:
    """Every key of a specification: its value, how the value came there, and its source."""
    return _rebate.sources(spec, [(key, _text(value)) for key, value in (set or {}).items()])


def _point(
    spec: str,
    point: Mapping[str, str],
    architectures: Sequence[str],
    seed: int,
    runs: int,
    precision: float | None,
    threads: int | None,
    files: dict[str, str] | None,
) -> tuple[Run, ...]:
    found = _rebate.simulate(
        spec,
        list(point.items()),
        list(architectures),
        seed=seed,
        runs=runs,
        precision=precision,
        threads=threads,
        files=files,
    )
    return tuple(_run(spec, point, one) for one in found)


def _run(spec: str, point: Mapping[str, str], one: dict[str, Any]) -> Run:
    def interval(found: tuple[float, float, float] | None) -> Interval | None:
        return None if found is None else Interval(*found)

    values = {(name, metric): interval(found) for name, metric, found in one.pop("rows")}
    reductions = {
        other: Reduction(Interval(*mean), interval(p99))
        for other, mean, p99 in one.pop("reductions")
    }
    reason = one.pop("reason", None)
    return Run(spec=spec, set=dict(point), reason=reason, values=values, reductions=reductions, **one)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low} to {high}")


def _text(value: Any) -> str:
    """A value as a specification has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
