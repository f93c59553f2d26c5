#!/usr/bin/env python3
"""Serves for two hours at 80 % of the knee, while every process is killed, stopped and started again.

Eight processes serve: a ring of three memcached, a compression service over gRPC, another over a lane, a scheduler, and
two frontends, of which each uses one of the compression services. The load is 90 % gets of 20,000 keys, with html values
of 100 B to 8 KiB and a set after every miss. Every value that is read is compared with what was written.
The knee is the highest rate at which the p99 of gets (median of three times ten seconds) is at most three times that at
a fifth of the closed loop's rate.
A cycle of ten minutes begins with a minute in which dictionaries are trained again, and three quiet minutes. In the other
six, every two to six seconds one or two processes are killed (SIGKILL), stopped (SIGSTOP) or ended (SIGTERM) for up to
three seconds, all of them in turn. In the second half the first frontend is only stopped, so that its memory can be
compared over an hour.
Criteria: no wrong byte. No request waits for ten seconds. None fails in a quiet minute. The p99 of gets in the quiet
minutes is at most 1.1 times that of the first cycle. In the second half, the memory of the first frontend at the end of
the last cycle is at most 1.05 times that at its beginning. After the quiet minutes the frontends are ready, and hold no
bytes of values in flight.
"""

import contextlib
import dataclasses
import json
import os
import random
import signal
import statistics
import tempfile
import time

from harness import BINARY, Bench, PATIENCE_S, Server, fail, held_port, placed, start_load, us, user
from urllib.error import HTTPError
from urllib.request import urlopen

STUCK_S = 10
LOAD = ["-c", 32, "--get-share", 0.9, "--set-on-miss", "--value-size", "100..8KiB"]
STUCK = "no answer within the request timeout"
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is done. All times are in seconds."""

    training_minutes: int = 1
    quiet_minutes: int = 3
    faulty_minutes: int = 6
    minute_s: float = 60
    step_s: float = 10
    gap_s: tuple = (2, 6)
    down_max_s: float = 3
    settle_s: float = 5
    keys: int = 20_000
    shares: tuple = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    step_runs: int = 3


QUICK = Scale(training_minutes=0, quiet_minutes=1, faulty_minutes=1, minute_s=3, step_s=1, gap_s=(0.1, 0.3),
              down_max_s=0.3, settle_s=1, keys=500, shares=(0.2, 0.4), step_runs=1)


class Slot:
    """A process with its port, which it keeps when it is started again."""

    def __init__(self, role, port, command, said=None):
        self.role, self.port, self.command, self.said = role, port, command, said
        self.server = None
        self.is_down = False

    def start(self):
        self.server = Server(self.command, self._port)
        self.is_down = False

    def _port(self, server):
        # memcached says nothing, and listens at once.
        is_ready = self.said is None or self.said in server.log.read_text(errors="replace")
        return self.port if is_ready else None

    def down(self, how):
        """Kills, stops or ends the process."""
        self.is_down = True
        child = self.server.child
        if how == "stop":
            child.send_signal(signal.SIGSTOP)
            return
        child.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        child.wait(PATIENCE_S)
        self.server.stop()

    def up(self, how):
        if how == "stop":
            self.server.child.send_signal(signal.SIGCONT)
            self.is_down = False
        else:
            self.start()


class Deployment:
    """The eight processes."""

    def __init__(self, files, scale):
        self.scale = scale
        port = lambda: files.enter_context(held_port())
        folder = files.enter_context(tempfile.TemporaryDirectory())
        serve = [BINARY, "serve", "--threads", "1"]
        ring = [Slot(f"memcached {number}", at, ["memcached", "-l", "127.0.0.1", "-p", str(at), "-U", "0", "-t", "1",
                                                 "-m", "128", *user()])
                for number, at in enumerate(port() for _ in range(3))]
        over_grpc, over_lane, scheduler = port(), port(), port()
        grpc = lambda role, at, *more: [*serve, "--role", role, "--grpc-listen", f"127.0.0.1:{at}", *more]
        store = "memcached://" + ",".join(f"127.0.0.1:{slot.port}" for slot in ring)
        services = [
            Slot("compression over gRPC", over_grpc, grpc("compression", over_grpc), "grpc on "),
            Slot("compression over a lane", over_lane, grpc("compression", over_lane, "--lane-listen",
                                                            f"{folder}/lane"), "grpc on "),
            Slot("scheduler", scheduler, grpc("scheduler", scheduler), "grpc on "),
        ]
        self.frontends = []
        for number, compression in enumerate([f"127.0.0.1:{over_grpc}", f"lane:{folder}/lane"]):
            at = port()
            command = [*serve, "--listen", f"127.0.0.1:{at}", "--admin-listen", "127.0.0.1:0", "--store", store,
                       "--compression", compression, "--scheduler", f"127.0.0.1:{scheduler}",
                       "--set", "runtime.offload_bytes_min=1000"]
            self.frontends.append(Slot(f"frontend {number}", at, command, "listening on "))
        self.slots = ring + services + self.frontends

    def __enter__(self):
        for slot in self.slots:
            slot.start()
        return self

    def __exit__(self, *_):
        for slot in self.slots:
            if slot.server:
                slot.server.stop()

    def load(self, *arguments):
        """Starts a load of both frontends."""
        first, second = (slot.server for slot in self.frontends)
        return start_load(first, second.url, *LOAD, "--keys", self.scale.keys, *arguments,
                          timeout_s=STUCK_S)

    def check(self):
        """Ends the benchmark if a process has ended by itself."""
        for slot in self.slots:
            if not slot.is_down and slot.server.child.poll() is not None:
                fail(f"{slot.role} has ended\n{slot.server.log.read_text(errors='replace')[-4000:]}")

    def untruths(self):
        """Returns what the frontends say that is not so, now that they run and nothing is asked."""
        found = []
        for slot in self.frontends:
            held = slot.server.metrics()['rebate_memory_held_bytes{part="values"}']
            if held:
                found.append(f"{slot.role} holds {held:.0f} bytes of values in flight")
            answer = ready(slot)
            if answer != 200:
                found.append(f"/readyz of {slot.role} is {answer}")
        return found


def ready(slot):
    """Returns the status of the page of readiness."""
    try:
        with urlopen(f"http://{slot.server.admin()}/readyz", timeout=PATIENCE_S) as page:
            return page.status
    except HTTPError as error:
        return error.code


def knee(deployment):
    """Returns the highest of some rates at which gets are still answered soon."""
    scale = deployment.scale
    # Meanwhile the frontends train their dictionaries.
    closed = finished(deployment.load("--in-flight", 2, "-d", f"{scale.minute_s}s"))
    most = closed["get"]["achieved_per_s"] + closed["set"]["achieved_per_s"]
    slow, found = None, None
    for share in scale.shares:
        flags = ["--rate", round(most * share), "-d", f"{scale.step_s}s", "--no-prepopulate"]
        reports = [finished(deployment.load(*flags)) for _ in range(scale.step_runs)]
        p99 = statistics.median(us(report, which="p99_ns") for report in reports)
        print(f"  {most * share:,.0f} requests/s: p99 of gets {p99:,.0f} us", flush=True)
        slow = slow or p99
        if p99 > 3 * slow:
            break
        found = most * share
    return found


def finished(running):
    """Waits for the end of a load and returns its report. Failed requests are a result here, and wrong bytes end the
    benchmark."""
    out, error = running.communicate()
    report = json.loads(out) if out else None
    if report is None or report["wrong"]["count"]:
        fail(f"the load ended with {running.returncode}\n{error}\n{report and report['wrong']}")
    return report


class Faults:
    """Faults of all processes in turn, until it is told to end."""

    def __init__(self, deployment, seed):
        self.deployment, self.random = deployment, random.Random(seed)
        self.turn = 0
        self.counts = {"kill": 0, "stop": 0, "end": 0}
        self.spares_first = False

    def run(self, until):
        scale = self.deployment.scale
        while time.monotonic() < until:
            time.sleep(self.random.uniform(*scale.gap_s))
            for slot, how in (chosen := self._draw()):
                slot.down(how)
                self.counts[how] += 1
            time.sleep(self.random.uniform(0, scale.down_max_s))
            for slot, how in chosen:
                slot.up(how)
            self.deployment.check()

    def _draw(self):
        slots = self.deployment.slots
        chosen = [slots[self.turn % len(slots)]]
        self.turn += 1
        if self.random.random() < 0.5:
            chosen.append(self.random.choice([slot for slot in slots if slot is not chosen[0]]))
        drawn = []
        for slot in chosen:
            spared = self.spares_first and slot is self.deployment.frontends[0]
            drawn.append((slot, "stop" if spared else self.random.choice(list(self.counts))))
        return drawn


class Totals:
    """What all loads and the frontends have shown."""

    def __init__(self):
        self.answered = self.stuck = self.failed_in_quiet = self.failed_in_faults = 0
        self.p99s, self.rss, self.untruths = [], [], []

    def add(self, report, is_quiet):
        ops = [report[op] for op in ["get", "set", "fill"]]
        self.answered += sum(op["answered"] for op in ops)
        self.stuck += report["errors"].get(STUCK, 0) + report["unanswered"]
        failed = sum(op["errors"] for op in ops) + report["unsent"]
        if is_quiet:
            self.failed_in_quiet += failed
        else:
            self.failed_in_faults += failed


def cycle(deployment, faults, rate, totals):
    scale, quiet = deployment.scale, []
    for _ in range(scale.training_minutes):
        totals.add(finished(deployment.load("--rate", rate, "-d", f"{scale.minute_s}s")), True)
    for _ in range(scale.quiet_minutes):
        running = deployment.load("--rate", rate, "-d", f"{scale.minute_s}s", "--warmup", f"{scale.minute_s / 10}s")
        report = finished(running)
        totals.add(report, True)
        quiet.append(us(report, which="p99_ns"))
    deployment.check()
    time.sleep(1)
    totals.untruths += deployment.untruths()
    totals.p99s.append(statistics.median(quiet))
    totals.rss.append([slot.server.rss_bytes() for slot in deployment.frontends])
    print(f"  quiet: p99 {' '.join(f'{p99:,.0f}' for p99 in quiet)} us, frontends "
          f"{' '.join(f'{rss / MIB:.1f}' for rss in totals.rss[-1])} MiB", flush=True)
    for _ in range(scale.faulty_minutes):
        running = deployment.load("--rate", rate, "-d", f"{scale.minute_s}s", "--no-prepopulate")
        # All processes run again before the load ends.
        faults.run(time.monotonic() + scale.minute_s - scale.gap_s[1] - scale.down_max_s)
        totals.add(finished(running), False)
    time.sleep(scale.settle_s)
    print(f"  faulty: {faults.counts}, {totals.answered:,} answered, {totals.failed_in_faults:,} failed, "
          f"{totals.stuck} stuck", flush=True)


def flags(parser):
    parser.add_argument("--hours", type=float, default=2, metavar="H", help="the length (default: 2)")
    parser.add_argument("--cores", type=int, nargs="+", metavar="CORE", help="the cores of all processes (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults (default: 1)")


def main():
    bench = Bench("endurance", __doc__, flags, runs=1)
    scale = QUICK if bench.quick else Scale()
    minutes = 4 if bench.quick else bench.flags.hours * 60
    cycles = max(2, round(minutes / (scale.training_minutes + scale.quiet_minutes + scale.faulty_minutes)))
    totals = Totals()
    cores = bench.flags.cores or os.sched_getaffinity(0)
    with contextlib.ExitStack() as files, placed(cores), Deployment(files, scale) as deployment:
        highest = knee(deployment)
        rate = round(0.8 * highest)
        print(f"  80 % of the knee: {rate:,} requests/s", flush=True)
        faults = Faults(deployment, bench.flags.seed)
        for number in range(cycles):
            print(f"cycle {number + 1} of {cycles}", flush=True)
            faults.spares_first = number >= cycles // 2
            cycle(deployment, faults, rate, totals)
    report(bench, totals, faults, highest, rate, cycles)


def report(bench, totals, faults, highest, rate, cycles):
    bench.row("rate.knee", "knee", [highest], "requests/s")
    bench.row("rate", "load", [rate], "requests/s")
    bench.row("answered", "requests answered", [totals.answered], "requests")
    for how, what in [("kill", "processes killed"), ("stop", "processes stopped"), ("end", "processes ended in order")]:
        bench.row(f"faults.{how}", what, [faults.counts[how]], "faults")
    # A wrong byte ends the benchmark at once.
    bench.row("wrong", "wrong values", [0], "values", at_most=0)
    bench.row("stuck", f"requests that waited for {STUCK_S} s", [totals.stuck], "requests", at_most=0)
    bench.row("failed.quiet", "requests that failed in quiet minutes", [totals.failed_in_quiet], "requests", at_most=0)
    bench.row("failed.faulty", "requests that failed in the other minutes", [totals.failed_in_faults], "requests")
    first, later = totals.p99s[0], totals.p99s[1:]
    bench.row("p99.first", "p99 of gets in the first quiet minutes", [first], "us")
    bench.row("ratio.p99", "p99 of gets in later quiet minutes, over the first", [p99 / first for p99 in later], "ratio",
              at_most=1.1)
    half = [rss[0] for rss in totals.rss[cycles // 2:]]
    bench.row("rss.frontend", "memory of the first frontend, second half", [rss / MIB for rss in half], "MiB")
    bench.row("ratio.rss", "the same, last over first", [half[-1] / half[0]], "ratio",
              at_most=None if bench.quick else 1.05)
    for untruth in totals.untruths:
        print(f"  {untruth}")
    bench.row("untruths", "wrong statements of health pages and metrics", [len(totals.untruths)], "statements", at_most=0)
    bench.finish()


if __name__ == "__main__":
    main()
