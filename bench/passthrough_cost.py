#!/usr/bin/env python3
"""Where does the time of a proxy in front of memcached go?

rebate (`serve --compress off --threads 1`) and nutcracker (twemproxy, ketama over fnv1a) stand in front of the same
memcached. memcaslap sends 90 % gets of 1 KiB values over 16 connections, as in `bench/passthrough.py`. All costs are
those of the proxy, divided by the requests:
- its time in user space and in the kernel, and how often it gave up its core to wait or was made to;
- its system calls, counted by strace, which makes each call slower, so that more requests are ready at once;
- its instructions in user space, counted by valgrind's callgrind, with 16 connections and with one.
The time of memcached per request is there because a proxy that sends several requests at once saves time of memcached.
Needs strace and valgrind (Debian: apt-get install strace valgrind).
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from _callgrind import START_S, control, profile_of
from harness import (BINARY, PATIENCE_S, ROOT, Bench, Server, fail, held_port, listening_port, memcached, memcaslap,
                     nutcracker_command)

SIDES = ["rebate", "nutcracker"]
VALUE_BYTES = 1024
# System calls that are rarer than this per request are summed up.
RARE = 0.01


def main():
    bench = Bench("passthrough_cost", __doc__, runs=3)
    seconds = 1 if bench.quick else 6
    found = {}
    for run in bench.each_run():
        for side in SIDES if run % 2 == 0 else reversed(SIDES):
            measured = [times(side, seconds), calls(side, seconds)]
            measured += [instructions(side, connections, seconds) for connections in (16, 1)]
            for part in measured:
                for name, value in part.items():
                    found.setdefault(name, {}).setdefault(side, []).append(value)
    for name, sides in found.items():
        unit = next(unit for start, unit in UNITS.items() if name.startswith(start))
        for side in SIDES:
            # A side without a certain system call has made none.
            values = sides.get(side, [0.0])
            bench.row(f"{name}.{side}", f"{side}: {name}", values, unit)
    bench.finish()


UNITS = {"user": "us/request", "system": "us/request", "memcached": "us/request", "switches": "switches/request",
         "calls": "calls/request", "instructions": "instructions/request"}


def started(side, store, before=()):
    """Starts a proxy, with the words `before` in front of its command."""
    if side == "rebate":
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--threads", "1", "--workers", "0", "--compress", "off",
                   "--store", f"memcached://{store.address}", f"--set=store.timeout_ms={PATIENCE_S * 1000}"]
        return Server([*before, *command], listening_port)
    with tempfile.TemporaryDirectory() as folder, held_port() as port, held_port() as stats_port:
        command = nutcracker_command(pathlib.Path(folder), store, port, stats_port)
        return Server([*before, *command], lambda _: port)


def times(side, seconds):
    with memcached("-m", "1024") as store, started(side, store) as proxy:
        before, switches, stored = cpu_us(proxy), switched(proxy), cpu_us(store)
        requests, _ = memcaslap(proxy, VALUE_BYTES, seconds)
        after, switches_after, stored_after = cpu_us(proxy), switched(proxy), cpu_us(store)
    user, system = ((late - early) / requests for early, late in zip(before, after))
    voluntary, forced = ((late - early) / requests for early, late in zip(switches, switches_after))
    return {"user": user, "system": system, "switches.voluntary": voluntary, "switches.forced": forced,
            "memcached": (sum(stored_after) - sum(stored)) / requests}


def cpu_us(server):
    """Returns the time that all threads ran in user space and in the kernel (us)."""
    fields = pathlib.Path(f"/proc/{server.child.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) * 1e4, int(fields[12]) * 1e4


def switched(server):
    """Returns how often the threads gave up their core, and how often they were made to."""
    kinds = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
    totals = dict.fromkeys(kinds, 0)
    for task in pathlib.Path(f"/proc/{server.child.pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in totals:
                totals[name] += int(value)
    return tuple(totals[kind] for kind in kinds)


def calls(side, seconds):
    with memcached("-m", "1024") as store, started(side, store) as proxy, tempfile.NamedTemporaryFile() as out:
        command = ["strace", "-c", "-f", "-o", out.name, "-p", str(proxy.child.pid)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            time.sleep(1)
            requests, _ = memcaslap(proxy, VALUE_BYTES, seconds)
            tracer.send_signal(signal.SIGINT)
            tracer.wait(PATIENCE_S)
        table = pathlib.Path(out.name).read_text()
    found = {}
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 5 or not re.fullmatch(r"[\d.]+", fields[0]) or fields[-1] == "total":
            continue
        each = int(fields[3]) / requests
        name = fields[-1] if each >= RARE else "rare"
        found[f"calls.{name}"] = found.get(f"calls.{name}", 0) + each
    if not found:
        fail(f"strace counted nothing\n{table}")
    found["calls.all"] = sum(found.values())
    return found


def instructions(side, connections, seconds):
    with memcached("-m", "1024") as store, tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        valgrind = [sys.executable, ROOT / "scripts" / "valgrind.py", "--tool=callgrind",
                    f"--callgrind-out-file={folder}/out", "--compress-strings=no"]
        with started(side, store, valgrind) as proxy:
            time.sleep(START_S)
            memcaslap(proxy, VALUE_BYTES, 1, connections)
            control(proxy, "--zero")
            requests, _ = memcaslap(proxy, VALUE_BYTES, seconds, connections)
            control(proxy, "--dump=load")
            profile = profile_of(folder, "load").read_text()
    total = re.search(r"^(?:totals|summary): (\d+)", profile, re.MULTILINE)
    if not total:
        fail("callgrind's profile has no total")
    return {f"instructions.{connections}": int(total[1]) / requests}


if __name__ == "__main__":
    main()
