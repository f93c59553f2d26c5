#!/usr/bin/env python3
"""What does shared memory save clients on the cache's host, compared with sockets?

`rebate serve` and memcached run with one thread each on one core, and the client on another one. Compression is off,
except for the rows of 64 KiB. The sides are a near connection and TCP to `rebate serve`, and TCP and a Unix socket to
memcached, all with the same client (the example `closed_loop` of rebate-client), and both sockets of memcached with
libmemcached. On a machine that others use too, look at the tenth percentile.
- A get of 200 B, the next when the last one has returned. Criteria: near p50 at most 3 us and p99 at most 10 us; p50 at
  most 1/10 of memcached's over TCP and 1/8 of that over its Unix socket, both with libmemcached; processor time of both
  sides at most 1/5 of that over TCP.
- The same with 500 us between two gets, so that the server sleeps, and on one core. Criterion: near p50 at most 12 us.
  What the system takes to wake a process on another core is measured next to it: a byte through a socket to a process
  that sleeps, and back, while this side polls.
- 16 gets in flight on one connection (`rebate load`). Criterion: at least 5 times memcached's gets/s over TCP.
- 100 keys in one call. Criterion: at least 2 million keys/s.
- A compressed value of 64 KiB over near and TCP, and one that does not compress. The client polls for at most 200 us, as
  `poll_max` allows it. With the default of 50 us it sleeps in such a get. Criterion: near p50 at most 6 us above the time
  to decompress the value, which is the mean of the server's own metrics for these gets.
The sides take turns within a run, and each run begins with another side.
"""

import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

from harness import (BINARY, PATIENCE_S, ROOT, SCRATCH, Bench, example, fail, load_report, memcached, need_example,
                     placed, ratios, rebate, turns, user)

LOOP = example("closed_loop")
NEAR = "rebate.near"
TCP = "memcached.tcp.libmemcached"
UNIX = "memcached.unix.libmemcached"
SIDES = [NEAR, "rebate.tcp", "memcached.tcp", "memcached.unix", TCP, UNIX]
IN_FLIGHT_SIDES = [NEAR, "rebate.tcp", "memcached.tcp", "memcached.unix"]
KEYS = 100
VALUE_BYTES = 200
LONG_BYTES = 64 << 10
LONG_KEYS = 64
GAP_US = 500
LONG_POLL_US = 200


def main():
    bench = Bench("near", __doc__)
    need_example(LOOP)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        fail("the client and the server need a core each")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = start(stack, folder, {cores[0]})
        with placed({cores[1]}):
            gets(bench, sides)
            asleep(bench, sides, "asleep", "500 us between gets")
            wake_up(bench, cores[0])
            in_flight(bench, sides)
            many(bench, sides)
            long_values(bench, sides)
        with placed({cores[0]}):
            asleep(bench, sides, "one_core", "500 us between gets, all on one core")
    bench.finish()


def start(stack, folder, cores):
    """Starts the servers. Returns for each side its server and the words by which its client finds it."""
    near, unix = folder / "near", folder / "memcached"
    with placed(cores):
        ours = stack.enter_context(rebate("--near-listen", near, "--set=server.threads=1", "--compress", "off"))
        packed = stack.enter_context(rebate("--near-listen", folder / "packed", "--set=server.threads=1",
                                            "--set=values.hot_share=0", "--admin-listen", "127.0.0.1:0"))
        theirs = stack.enter_context(memcached("-m", "256"))
        command = ["memcached", "-s", unix, "-t", "1", "-m", "256", *user()]
        other = stack.enter_context(UnixServer(command, unix))
    program = libmemcached()
    host, port = theirs.address.split(":")
    return {
        NEAR: (ours, [LOOP, f"near:{near}"]),
        "rebate.tcp": (ours, [LOOP, ours.address]),
        "packed.near": (packed, [LOOP, f"near:{folder / 'packed'}"]),
        "packed.tcp": (packed, [LOOP, packed.address]),
        "memcached.tcp": (theirs, [LOOP, theirs.address]),
        "memcached.unix": (other, [LOOP, f"unix:{unix}"]),
        TCP: (theirs, program and [program, host, port]),
        UNIX: (other, program and [program, unix, "0"]),
    }


class UnixServer:
    """A memcached on a Unix socket. It stops at the end of the `with` block."""

    def __init__(self, command, path):
        self.child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL)
        self.path = path

    def __enter__(self):
        for _ in range(PATIENCE_S * 100):
            if self.path.exists():
                return self
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(0.01)
                break
        fail(f"memcached does not listen on {self.path}")

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()


def ran_s(server):
    """Returns the time that all threads of a server ran (s)."""
    threads = pathlib.Path(f"/proc/{server.child.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def libmemcached():
    """Builds the client that uses libmemcached. Returns none if its headers are not installed."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    program = SCRATCH / "_libmemcached"
    source = ROOT / "bench" / "_libmemcached.c"
    built = subprocess.run(["cc", "-O2", "-o", program, source, "-lmemcached"], capture_output=True, text=True)
    if built.returncode == 0:
        return program
    print("note: no rows with libmemcached, which needs its headers (libmemcached-dev) and a C compiler\n"
          + built.stderr, flush=True)
    return None


def closed_loop(side, sides, seconds, op="get", keys=KEYS, value_bytes=VALUE_BYTES, more=()):
    """Runs one closed loop. Returns its report, with the server's processor time of a call (ns)."""
    server, words = sides[side]
    if words[0] == LOOP:
        words = [*words, "--op", op, "--keys", keys, "--value-bytes", value_bytes, "--seconds", seconds, *more]
    else:
        words = [*words, op, keys, value_bytes, seconds]
    before_s = ran_s(server)
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{words} ended with {done.returncode}\n{done.stderr}")
    report = json.loads(done.stdout)
    # The server has also worked for the sets and the first rounds, which are not timed.
    report["server_cpu_ns"] = (ran_s(server) - before_s) * 1e9 / report["all_calls"]
    return report


def measured(bench, sides, names, **asked):
    """Runs the closed loops of several sides in turns. Returns the reports of each."""
    names = [name for name in names if sides[name][1]]
    reports = {name: [] for name in names}
    seconds = 0.2 if bench.quick else 2
    for run in range(bench.runs):
        for name in turns(names, run):
            reports[name].append(closed_loop(name, sides, seconds, **asked))
    return reports


def row_each(bench, reports, row, what, field, unit, scale, **bars):
    """Adds a row of one field for each side. The bars are for the near connection."""
    for name, found in reports.items():
        values = [report[field] * scale for report in found]
        bench.row(f"{row}.{name}", f"{name}: {what}", values, unit, **(bars if name.endswith(NEAR) else {}))


def gets(bench, sides):
    reports = measured(bench, sides, SIDES)
    row_each(bench, reports, "p10.get.200B", "get p10", "p10_ns", "us", 1e-3)
    row_each(bench, reports, "p50.get.200B", "get p50", "p50_ns", "us", 1e-3, at_most=3)
    row_each(bench, reports, "p99.get.200B", "get p99", "p99_ns", "us", 1e-3, at_most=10)
    for name, found in reports.items():
        for report in found:
            report["both_cpu_ns"] = report["client_cpu_ns"] + report["server_cpu_ns"]
    for field, what in [("client_cpu_ns", "client"), ("server_cpu_ns", "server"), ("both_cpu_ns", "both")]:
        row_each(bench, reports, f"cpu.{what}.get.200B", f"processor time of a get, {what}", field, "us", 1e-3)
    for other, name, share in [(TCP, "tcp", 10), (UNIX, "unix", 8)]:
        if other in reports:
            bench.row(f"ratio.p50.memcached.{name}", f"get p50, near over memcached {name} (libmemcached)",
                      ratio(reports, other, "p50_ns"), "ratio", at_most=1 / share)
    over = TCP if TCP in reports else "memcached.tcp"
    bench.row("ratio.cpu.memcached.tcp", f"processor time of both, near over {over}",
              ratio(reports, over, "both_cpu_ns"), "ratio", at_most=0.2)


def ratio(reports, other, field):
    ours, theirs = ([report[field] for report in reports[name]] for name in (NEAR, other))
    return ratios(ours, theirs)


def asleep(bench, sides, row, what):
    names = [name for name in IN_FLIGHT_SIDES if name != "memcached.unix"]
    reports = measured(bench, sides, names, more=["--gap-us", GAP_US])
    row_each(bench, reports, f"p50.{row}.get.200B", f"get p50, {what}", "p50_ns", "us", 1e-3, at_most=12)


def wake_up(bench, core):
    """Measures a byte to a process that sleeps on this core, and back."""
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        os.sched_setaffinity(0, {core})
        while byte := there.recv(1):
            there.send(byte)
        os._exit(0)
    there.close()
    here.setblocking(False)
    medians = []
    for _ in range(bench.runs):
        times = []
        for _ in range(100 if bench.quick else 2000):
            time.sleep(GAP_US / 1e6)
            begin = time.perf_counter_ns()
            here.send(b"!")
            while True:
                with contextlib.suppress(BlockingIOError):
                    here.recv(1)
                    break
            times.append((time.perf_counter_ns() - begin) / 1e3)
        medians.append(statistics.median(times))
    here.close()
    os.waitpid(child, 0)
    bench.row("p50.wake_up", "a byte to a sleeping process on another core and back", medians, "us")


def in_flight(bench, sides):
    per_s = {name: [] for name in IN_FLIGHT_SIDES}
    duration = "300ms" if bench.quick else "2s"
    for run in range(bench.runs):
        for name in turns(IN_FLIGHT_SIDES, run):
            target = str(sides[name][1][1])
            command = [BINARY, "load", target, "--json", "-c", "1", "--in-flight", "16", "--get-share", "1",
                       "--keys", str(KEYS), "--value-size", f"{VALUE_BYTES}B", "-d", duration,
                       "--warmup", "200ms", "--timeout", f"{PATIENCE_S}s"]
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            report = load_report(running)
            per_s[name].append(report["get"]["answered"] / report["measured_s"])
    for name, values in per_s.items():
        bench.row(f"gets_per_s.in_flight16.{name}", f"{name}: 16 gets in flight", values, "gets/s")
    bench.row("ratio.gets_per_s.in_flight16", "16 in flight, near over memcached tcp",
              ratios(per_s[NEAR], per_s["memcached.tcp"]), "ratio", at_least=5)


def many(bench, sides):
    reports = measured(bench, sides, SIDES, op="many")
    row_each(bench, reports, "keys_per_s.many100", "100 keys in one call", "calls_per_s", "keys/s", KEYS,
             at_least=2_000_000)


def long_values(bench, sides):
    names = ["packed.near", "packed.tcp"]
    server = sides[names[0]][0]
    for row, what, more in [("text", "64 KiB, compressed", ["--text"]), ("plain", "64 KiB, incompressible", [])]:
        before = decompression(server)
        polls = ["--poll-max-us", LONG_POLL_US]
        reports = measured(bench, sides, names, keys=LONG_KEYS, value_bytes=LONG_BYTES, more=[*more, *polls])
        row_each(bench, reports, f"p50.get.64KiB.{row}", f"get p50, {what}", "p50_ns", "us", 1e-3)
        seconds, jobs = (after - earlier for after, earlier in zip(decompression(server), before))
        if row == "text":
            inflate_us = seconds / jobs * 1e6
            bench.row("inflate.64KiB.text", "decompress, mean of all runs", [inflate_us], "us")
            over = [report["p50_ns"] / 1e3 - inflate_us for report in reports[names[0]]]
            bench.row("p50.over_inflate.64KiB.packed.near", "get p50, 64 KiB, compressed, near, without decompress",
                      over, "us", at_most=6)


def decompression(server):
    """Returns the time that the server has spent on decompressions (s), and their number."""
    found = server.metrics().items()
    seconds = [value for name, value in found if name.startswith("rebate_job_seconds_total")
               and 'op="decompress"' in name and 'part="service"' in name]
    jobs = [value for name, value in found if name.startswith("rebate_jobs_total") and 'op="decompress"' in name]
    return sum(seconds), sum(jobs)


if __name__ == "__main__":
    main()
