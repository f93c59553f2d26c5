"""The simulator: runs, sweeps of keys, results as rows and frames.

Same seed, same numbers, on any machine and any number of threads. What a run does not bear out is None: an overloaded
architecture has a reason in the place of its times.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

from rebate import _rebate
from rebate._kept import Kept

if TYPE_CHECKING:
    import pandas
    import polars
    from typing_extensions import Unpack

__all__ = [
    "ALL",
    "COMPARED",
    "SCENARIOS",
    "Interval",
    "Plan",
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
ALL: tuple[str, ...] = tuple(_rebate.architectures("steady", [], ["all"]))
"""Every architecture of AccelFlow's server."""
COMPARED: tuple[str, ...] = ("non-acc", "cpu-centric", "relief", "cohort", "accelflow")
"""The five of figure 11 of [AccelFlow]."""


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
    precise: bool | None
    """Whether the precision that was asked for was reached; None where none was."""
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


class Options(TypedDict, total=False):
    """What a `Plan` has beside its specification, as keywords of `run`, `sweep` and `points`."""

    set: Mapping[str, Any]
    architectures: Sequence[str]
    seed: int
    runs: int
    precision: float | None
    threads: int | None


@dataclass(frozen=True)
class Plan:
    """What is simulated: one at every point of a sweep, but for the keys that the sweep gives other values."""

    spec: str = "steady"
    """A scenario that is compiled in, or the path of a specification file: of AccelFlow's server, of Arcalis or of
    RELIEF's applications."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Keys with other values."""
    architectures: Sequence[str] = ()
    """All with the same random numbers; those that are compared where none is named, and every one for `all`."""
    seed: int = 1
    runs: int = 10
    """Independent replications, 5 to 100."""
    precision: float | None = None
    """With it there are more, up to twenty times as many, until half of every interval is at most that fraction of
    its value."""
    threads: int | None = None
    """Of each point; None for all cores, or one where points are tasks of Ray."""

    def __post_init__(self) -> None:
        _check("seed", self.seed, 0, 2**64 - 1)
        _check("runs", self.runs, 0, 2**32 - 1)
        _check("threads", 1 if self.threads is None else self.threads, 1, 1024)
        # Its own, in the words of a specification: it is given to other processes, and known again by them.
        texts = {key: _text(value) for key, value in (self.set or {}).items()}
        object.__setattr__(self, "set", texts)
        object.__setattr__(self, "architectures", tuple(self.architectures))

    def _at(self, point: Mapping[str, str]) -> Plan:
        return replace(self, set={**self.set, **point})

    def _simulate(self, files: dict[str, str]) -> tuple[Run, ...]:
        found = _rebate.simulate(
            self.spec,
            list(self.set.items()),
            self.architectures,
            seed=self.seed,
            runs=self.runs,
            precision=self.precision,
            threads=self.threads,
            files=files,
        )
        return tuple(_run(self, one) for one in found)

    def _identity(self, files: dict[str, str]) -> dict[str, Any]:
        """What its numbers follow from where its specification is of these texts; threads are not among it."""
        keys = _rebate.sources(self.spec, list(self.set.items()), files)
        recording = _rebate.recording(self.spec, list(self.set.items()), files)
        identity: dict[str, Any] = {
            "version": _rebate.__version__,
            "spec": self.spec,
            "set": dict(self.set),
            "keys": [[key, value] for key, value, _, _ in keys],
            "architectures": _rebate.architectures(
                self.spec, list(self.set.items()), self.architectures, files
            ),
            "seed": self.seed,
            "runs": self.runs,
            "precision": self.precision,
        }
        if recording is not None:
            identity["recording"] = recording
        return identity


def run(
    spec: str | Plan = "steady",
    *,
    keep: str | PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Results:
    """Simulates a scenario, a specification file or a plan under some architectures, all with the same random numbers.

    The keywords are `Plan`'s: `set`, `architectures`, `seed`, `runs`, `precision`, `threads`.
    """
    return sweep(spec, {}, keep=keep, **options)


def sweep(
    spec: str | Plan,
    values: Mapping[str, Sequence[Any]],
    *,
    keep: str | PathLike[str] | None = None,
    ray: bool = False,
    **options: Unpack[Options],
) -> Results:
    """Simulates every combination of the keys' values, the last key's changing fastest.

    With `keep`, a directory, each point is written there when it is done, and one that is there already is not
    simulated again: called again after an interrupt, a sweep goes on where it was. A point is known by all that its
    numbers follow from, so a changed key, specification or version is simulated anew.

    With `ray`, each point is a task of the Ray cluster that this process is connected to (a local one is started if it
    is not); needs the extra `rebate[ray]`. The numbers are the same, and this process keeps them.
    """
    return Results(tuple(itertools.chain(*points(spec, values, keep=keep, ray=ray, **options))))


def points(
    spec: str | Plan,
    values: Mapping[str, Sequence[Any]],
    *,
    keep: str | PathLike[str] | None = None,
    ray: bool = False,
    **options: Unpack[Options],
) -> Iterator[Results]:
    """As `sweep`, each point's results as soon as it and those before it are done."""
    plan = replace(spec, **options) if isinstance(spec, Plan) else Plan(spec, **options)
    texts = [[_text(value) for value in choices] for choices in values.values()]
    plans = [plan._at(dict(zip(values, point))) for point in itertools.product(*texts)]
    kept = None if keep is None else Kept(keep)
    # Read once, for what is simulated and for what it is kept as: whoever writes them meanwhile changes neither.
    files = _rebate.files(plan.spec, [list(one.set.items()) for one in plans])
    places = [_Place(one, kept, files) for one in plans]
    found = _on_ray(plans, places, files) if ray else _here(plans, places, files)
    return (Results(runs) for runs in found)


def _here(
    plans: Sequence[Plan], places: Sequence[_Place], files: dict[str, str]
) -> Iterator[tuple[Run, ...]]:
    for plan, place in zip(plans, places):
        runs = place.find()
        if runs is None:
            runs = plan._simulate(files)
            place.keep(runs)
        yield runs


def _on_ray(
    plans: Sequence[Plan], places: Sequence[_Place], files: dict[str, str]
) -> Iterator[tuple[Run, ...]]:
    import ray as cluster

    done = {at: runs for at, place in enumerate(places) if (runs := place.find()) is not None}
    missing = [at for at in range(len(plans)) if at not in done]
    waiting: dict[Any, int] = {}
    if missing:
        if not cluster.is_initialized():
            cluster.init(log_to_driver=False)
        threads = plans[0].threads or 1
        # A task has the cores that it is given, no more: by default one.
        task = cluster.remote(_task).options(num_cpus=threads)
        for at in missing:
            # A worker may see other files than this process, or none.
            waiting[task.remote(replace(plans[at], threads=threads), files)] = at

    def take(ended: Sequence[Any]) -> None:
        for one in ended:
            runs = cluster.get(one)
            places[waiting[one]].keep(runs)
            done[waiting.pop(one)] = runs

    try:
        for at in range(len(plans)):
            while at not in done:
                # In whatever order they end: each is kept as soon as it is there.
                take(cluster.wait(list(waiting))[0])
            yield done.pop(at)
    finally:
        # Who is interrupted keeps what has ended by then, but what has failed, and lets go of the rest.
        while waiting:
            ended, _ = cluster.wait(list(waiting), timeout=0)
            if not ended:
                break
            with contextlib.suppress(Exception):
                take(ended)
            for one in ended:
                waiting.pop(one, None)
        for one in waiting:
            cluster.cancel(one)


def _task(plan: Plan, files: dict[str, str]) -> tuple[Run, ...]:
    return plan._simulate(files)


def sources(
    spec: str = "steady", set: Mapping[str, Any] | None = None
) -> list[tuple[str, str, str, str]]:
    """Every key of a specification: its value, how the value came there, and its source."""
    return _rebate.sources(spec, [(key, _text(value)) for key, value in (set or {}).items()])


def _run(plan: Plan, one: dict[str, Any]) -> Run:
    """A run as the extension gives it, and as it is kept."""

    def interval(found: Sequence[float] | None) -> Interval | None:
        return None if found is None else Interval(*found)

    one = dict(one)
    values = {(name, metric): interval(found) for name, metric, found in one.pop("rows")}
    reductions = {
        other: Reduction(Interval(*mean), interval(p99))
        for other, mean, p99 in one.pop("reductions")
    }
    reason, precise = one.pop("reason", None), one.pop("precise", None)
    point = dict(plan.set)
    return Run(
        spec=plan.spec,
        set=point,
        reason=reason,
        precise=precise,
        values=values,
        reductions=reductions,
        **one,
    )


def _plain(run: Run) -> dict[str, Any]:
    """What `_run` makes the run of."""

    def flat(found: Interval | None) -> list[float] | None:
        return None if found is None else [found.value, found.low, found.high]

    return {
        "architecture": run.architecture,
        "seed": run.seed,
        "replications": run.replications,
        "events": run.events,
        "verdict": run.verdict,
        "reason": run.reason,
        "precise": run.precise,
        "rows": [[name, metric, flat(found)] for (name, metric), found in run.values.items()],
        "reductions": [
            [other, flat(found.mean), flat(found.p99)] for other, found in run.reductions.items()
        ],
    }


class _Place:
    """Where a plan's runs are kept, if they are; of what numbers follow from, it knows all before they are there."""

    def __init__(self, plan: Plan, kept: Kept | None, files: dict[str, str]) -> None:
        self._plan = plan
        self._at = None if kept is None else (kept, plan._identity(files))

    def find(self) -> tuple[Run, ...] | None:
        if self._at is None:
            return None
        kept, identity = self._at
        found = kept.find(identity)
        try:
            return None if found is None else tuple(_run(self._plan, one) for one in found)
        except (AttributeError, KeyError, TypeError, ValueError):
            # It was written by something else: it is simulated again and written over.
            return None

    def keep(self, runs: tuple[Run, ...]) -> None:
        if self._at is not None:
            kept, identity = self._at
            kept.keep(identity, [_plain(one) for one in runs])


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low} to {high}")


def _text(value: Any) -> str:
    """A value as a specification has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
