"""The simulator: runs, sweeps of keys, and results as rows and frames.

The same seed gives the same numbers on every machine and with every number of threads. A value that a run cannot
support is None. For example, an overloaded architecture has a reason and no times.
"""

from __future__ import annotations

import contextlib
import html
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
    from matplotlib.axes import Axes
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
"""The five architectures of figure 11 of [AccelFlow]."""


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Reduction:
    """The reduction of one architecture's times relative to another's (a fraction), paired by replication."""

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
    """The verdict: steady, window or refused."""
    reason: str | None
    """The reason why there is no steady state."""
    precise: bool | None
    """Whether the requested precision was reached. None if no precision was requested."""
    values: Mapping[tuple[str, str], Interval | None] = field(repr=False)
    """The values by name (a service, all, or the name of a fact) and metric (mean_ns, p99_ns, fact)."""
    reductions: Mapping[str, Reduction] = field(repr=False)
    """The reductions by the name of the other architecture."""

    def value(self, name: str = "all", metric: str = "p99_ns") -> Interval | None:
        """Returns one value. Raises KeyError if there is no such name and metric."""
        return self.values[name, metric]


@dataclass(frozen=True)
class Results:
    """The runs in the order of the requested points and architectures."""

    runs: tuple[Run, ...]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def run(self, architecture: str, **at: Any) -> Run:
        """Returns the run of an architecture at a point. `at` has values of keys, with `__` for each dot of a key."""
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
        """Returns one row per value, as tidy data."""
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

    def plot(
        self, name: str = "all", metric: str = "p99_ns", *, over: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draws one value of every run with its 95 % interval, and returns matplotlib's axes.

        `over` is a key of the specification with numbers as values: the drawing then has one line per architecture over
        this key. By default it is the first swept key that has such values. Without one, there is a bar per run. A run
        that does not support the value is a gap. Needs the extra `rebate[notebook]`.
        """
        from matplotlib import pyplot

        axes = ax if ax is not None else pyplot.figure(layout="constrained").add_subplot()
        if over is None:
            over = next(iter(self._swept_numbers()), None)
        if over is None:
            _draw_bars(axes, self.runs, name, metric)
        else:
            _draw_lines(axes, self.runs, name, metric, over)
        axes.set_ylabel(f"{metric.removesuffix('_ns')} of {name} (us)" if metric.endswith("_ns") else name)
        axes.set_ylim(bottom=0)
        return axes

    def _swept_numbers(self) -> list[str]:
        """Returns the keys that have different numbers in the runs."""
        keys = dict.fromkeys(key for run in self.runs for key in run.set)
        texts = {key: {run.set.get(key) for run in self.runs} for key in keys}
        return [key for key, found in texts.items() if len(found) > 1 and all(map(_is_number, found))]

    def _repr_html_(self) -> str:
        """Returns a table of the runs for a notebook, with the mean and the 99th percentile of all responses (us)."""
        keys = list(dict.fromkeys(key for run in self.runs for key in run.set))
        head = [*keys, "architecture", "mean (us)", "p99 (us)", "verdict"]
        rows = [
            [
                *(run.set.get(key, "") for key in keys),
                run.architecture,
                _us(run.values.get(("all", "mean_ns"))),
                _us(run.values.get(("all", "p99_ns"))),
                run.verdict if run.reason is None else f"{run.verdict}: {run.reason}",
            ]
            for run in self.runs
        ]
        return html_table(head, rows)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a frame. Needs the extra `rebate[pandas]`."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a frame. Needs the extra `rebate[polars]`."""
        import polars

        return polars.DataFrame(self.rows(), infer_schema_length=None)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table for a notebook. Texts are escaped."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><thead>{cells('th', head)}</thead><tbody>{body}</tbody></table>"


def interval_text(found: Interval | None, scale: float = 1.0) -> str:
    """Returns a value and its interval with four digits."""
    if found is None:
        return "\N{EN DASH}"
    value, low, high = (f"{scale * one:.4g}" for one in (found.value, found.low, found.high))
    return f"{value} ({low} .. {high})"


def _us(found: Interval | None) -> str:
    return interval_text(found, 1e-3)


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def _drawn(found: Interval | None, metric: str) -> tuple[float, float, float]:
    """Returns a value, and how far its interval reaches below and above it."""
    if found is None:
        return (float("nan"),) * 3
    scale = 1e-3 if metric.endswith("_ns") else 1.0
    return scale * found.value, scale * (found.value - found.low), scale * (found.high - found.value)


def _draw_bars(axes: Axes, runs: Sequence[Run], name: str, metric: str) -> None:
    for at, run in enumerate(runs):
        value, below, above = _drawn(run.values.get((name, metric)), metric)
        axes.bar(at, value, yerr=[[below], [above]], capsize=3)
    labels = [" ".join([run.architecture, *run.set.values()]) for run in runs]
    axes.set_xticks(range(len(runs)), labels, rotation=30, ha="right")


def _draw_lines(axes: Axes, runs: Sequence[Run], name: str, metric: str, over: str) -> None:
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for run in runs:
        others = [f"{key}={text}" for key, text in run.set.items() if key != over]
        point = (float(run.set[over]), *_drawn(run.values.get((name, metric)), metric))
        lines.setdefault(" ".join([run.architecture, *others]), []).append(point)
    for label, points_of_line in lines.items():
        places, values, below, above = zip(*sorted(points_of_line))
        axes.errorbar(places, values, yerr=[below, above], marker="o", capsize=3, label=label)
    axes.set_xlabel(over)
    axes.legend()


class Options(TypedDict, total=False):
    """The fields of a `Plan` without its specification, as keywords of `run`, `sweep` and `points`."""

    set: Mapping[str, Any]
    architectures: Sequence[str]
    seed: int
    runs: int
    precision: float | None
    threads: int | None


@dataclass(frozen=True)
class Plan:
    """A plan of what is simulated. All points of a sweep have one plan, except for the keys that the sweep varies."""

    spec: str = "steady"
    """A compiled-in scenario, or the path of a specification file: of AccelFlow's server, of Arcalis or of RELIEF's
    applications."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """The keys whose values differ from the specification."""
    architectures: Sequence[str] = ()
    """The architectures, which all get the same random numbers. Without names these are the compared ones, and `all`
    stands for every architecture."""
    seed: int = 1
    runs: int = 10
    """The number of independent replications, 5 to 100."""
    precision: float | None = None
    """The target for half the width of every interval, as a fraction of the value. Replications are added until it
    is reached, up to twenty times `runs`."""
    threads: int | None = None
    """The threads of each point. None means all cores, or one thread if points are tasks of Ray."""

    def __post_init__(self) -> None:
        _check("seed", self.seed, 0, 2**64 - 1)
        _check("runs", self.runs, 0, 2**32 - 1)
        _check("threads", 1 if self.threads is None else self.threads, 1, 1024)
        # The plan gets its own copy of the keys, as texts of a specification. Other processes receive the plan and must
        # recognise it.
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
        """Returns everything that determines the numbers of the plan, with these texts of the specification's files.
        The number of threads has no influence."""
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
    """Simulates every combination of the keys' values. The values of the last key change fastest.

    With a directory `keep`, each point is written there when it is done, and a point that is already there is not
    simulated again. So after an interrupt a second call continues the sweep. A point is identified by everything that
    determines its numbers, so a changed key, specification or version is simulated again.

    With `ray`, each point is a task of the Ray cluster to which this process is connected. If it is not connected,
    a local cluster is started. This needs the extra `rebate[ray]`. The numbers are the same, and this process stores
    them.
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
    """Simulates a sweep like `sweep`. Yields the results of each point as soon as it and all points before it are
    done."""
    plan = replace(spec, **options) if isinstance(spec, Plan) else Plan(spec, **options)
    texts = [[_text(value) for value in choices] for choices in values.values()]
    plans = [plan._at(dict(zip(values, point))) for point in itertools.product(*texts)]
    kept = None if keep is None else Kept(keep)
    # The files are read once, for the simulation and for the identity of its results. A later change affects neither.
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
        # A task gets only the cores that it requests, which is one by default.
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
                # Points may end in any order. Each is stored as soon as it ends.
                take(cluster.wait(list(waiting))[0])
            yield done.pop(at)
    finally:
        # After an interrupt, the points that have ended without an error are stored, and the others are cancelled.
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
    """Returns every key of a specification with its value, how the value was set, and its source."""
    return _rebate.sources(spec, [(key, _text(value)) for key, value in (set or {}).items()])


def _run(plan: Plan, one: dict[str, Any]) -> Run:
    """Makes a run from the data that the extension returns, which is also the stored form."""

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
    """Returns the data from which `_run` makes the run."""

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
    """The place of a plan's stored runs, if they are stored. The identity of the plan is computed before its runs
    exist."""

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
            # Another program wrote the file. The point is simulated again, and the file is overwritten.
            return None

    def keep(self, runs: tuple[Run, ...]) -> None:
        if self._at is not None:
            kept, identity = self._at
            kept.keep(identity, [_plain(one) for one in runs])


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low} to {high}")


def _text(value: Any) -> str:
    """Returns a value as text of a specification."""
    return str(value).lower() if isinstance(value, bool) else str(value)
