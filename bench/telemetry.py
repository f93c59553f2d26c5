#!/usr/bin/env python3
"""What does it cost to record where the time of requests goes?

`rebate serve` with its own store and compression gets the same load at a fixed rate: 90 % gets of HTML of 1 KiB. The
sides are:
- off: no request is recorded,
- sampled: one in 1,000 is, which is the default,
- exported: the same, and spans, metrics and the log go to the collector of --collector, every 10 s for metrics,
- slow: every request is recorded, because slow ones are looked for. None is slow.
The costs are the CPU time of the server for each request, and the 99th percentile of a get. Without --collector there is
no side `exported`. The collector is that of OpenTelemetry, with the receiver `otlp` and the exporter `debug`. It is
started with bench/otelcol.yaml.
"""

import contextlib
import pathlib
import socket
import subprocess
import tempfile
import time

from harness import PATIENCE_S, ROOT, Bench, fail, load, ratios, rebate, turns, us

RATE = 8_000
KEYS = 5_000
VALUE_BYTES = 1024
COLLECTOR = ("127.0.0.1", 4317)
EXPORTED = 'rebate_otlp_exported_total{signal="spans"}'
OFF = ["--set=requests.sample_every=0"]
SIDES = {
    "off": OFF,
    "sampled": [],
    "exported": ["--set=otlp.address=127.0.0.1:4317"],
    "slow": [*OFF, "--set=requests.slow_us=1000000"],
}


def main():
    bench = Bench("telemetry", __doc__, flags)
    seconds = 2 if bench.quick else 12
    collector = bench.flags.collector
    sides = [side for side in SIDES if side != "exported" or collector]
    cpu = {side: [] for side in sides}
    p99 = {side: [] for side in sides}
    with running(collector):
        for run in bench.each_run():
            for side in turns(sides, run):
                cost, report = measured(SIDES[side], seconds)
                cpu[side].append(cost)
                p99[side].append(us(report, which="p99_ns"))
    for side in sides:
        bench.row(f"cpu.{side}", f"CPU time of a request, {side}", cpu[side], "us")
        bench.row(f"p99.{side}", f"p99 of a get, {side}", p99[side], "us")
    for side in sides[1:]:
        # With everything on at default sampling.
        bar = 1.02 if side in ("sampled", "exported") else None
        bench.row(f"ratio.cpu.{side}", f"CPU time of {side} over off", ratios(cpu[side], cpu["off"]), "ratio",
                  at_most=bar)
    bench.finish()


@contextlib.contextmanager
def running(collector):
    if not collector:
        yield
        return
    command = [collector, "--config", ROOT / "bench" / "otelcol.yaml"]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as child:
        try:
            await_port(child, log)
            yield
        finally:
            child.terminate()


def await_port(child, log):
    """Waits until the collector accepts connections. Without it, the side `exported` would export nothing."""
    for _ in range(PATIENCE_S * 10):
        if child.poll() is not None:
            log.seek(0)
            fail(f"the collector has ended: {log.read()}")
        with contextlib.suppress(OSError), socket.create_connection(COLLECTOR, 1):
            return
        time.sleep(0.1)
    fail("the collector does not accept connections")


def measured(settings, seconds):
    common = ["--threads", "1", "--workers", "0", "--memory", "64MiB", "--admin-listen", "127.0.0.1:0"]
    with rebate(*common, *settings) as server:
        words = ["--rate", RATE, "--arrivals", "uniform", "-c", 8, "--keys", KEYS, "--value-size", VALUE_BYTES]
        load(server, *words, "-d", "1s")
        before = cpu_ns(server)
        report = load(server, *words, "-d", f"{seconds}s", "--warmup", "0s", "--no-prepopulate")
        cost = (cpu_ns(server) - before) / 1e3 / (report["get"]["answered"] + report["set"]["answered"])
        if settings == SIDES["exported"] and not server.metrics()[EXPORTED]:
            fail("the collector has received no spans")
    return cost, report


def cpu_ns(server):
    """Returns the time that all threads of a server ran so far (ns)."""
    tasks = pathlib.Path(f"/proc/{server.child.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def flags(parser):
    parser.add_argument("--collector", metavar="PROGRAM", help="the collector of OpenTelemetry (otelcol)")


if __name__ == "__main__":
    main()
