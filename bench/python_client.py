#!/usr/bin/env python3
"""Measures how long a get takes from Python: `rebate.client` over shared memory and over TCP, and pymemcache over TCP.

One client calls a server in a closed loop, each on a core of its own if there are two. The values have 200 B, and 64 KiB
of html, which is compressed. Times are of the client's calls. The clients take turns with every run, and every value that
is read is compared with what was set. Two more threads that only compute show what a get costs while others want the
interpreter's lock.
Criterion: the p50 of a get over shared memory is at most 8 us.
Needs the extension: `cargo build --release -p rebate-python`, or REBATE_PYTHON_LIBRARY names it.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv

from harness import (PATIENCE_S, ROOT, SCRATCH, Bench, fail, html_pages, memcached, placed, ratios, rebate, turns)

PYMEMCACHE = "pymemcache==4.0.0"
SMALL_BYTES = 200
KEYS = 100


def main():
    ensure_pymemcache()
    import_package()
    bench = Bench("python_client", __doc__)
    pages, source = html_pages(None, 1)
    print(f"values: {SMALL_BYTES} B, and 64 KiB, {source}")
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        with placed({cores[0]}):
            ours, store = rebate("--near-listen", f"{folder}/near", "--threads", "1"), memcached()
        with ours, store, placed({cores[-1]}):
            sides = {
                "near": side(f"near:{folder}/near"),
                "tcp": side(ours.address),
                "pymemcache_rebate": other(ours),
                "pymemcache_memcached": other(store),
            }
            for run in bench.each_run():
                for name in turns(list(sides), run):
                    sides[name].run(100 if bench.quick else 20_000, pages[0])
    report(bench, sides)


def side(address):
    from rebate.client import Client
    return Side(Client(address, timeout=PATIENCE_S))


def other(server):
    from pymemcache.client.base import Client
    return Side(Client(("127.0.0.1", server.port), no_delay=True, timeout=PATIENCE_S))


class Side:
    """A client, and the times of its calls: one number per run (us)."""

    def __init__(self, client):
        self.client = client
        self.found = {}

    def run(self, count, page):
        small = b"x" * SMALL_BYTES
        self.client.set_many({f"key{number}": small for number in range(KEYS)}, noreply=False)
        self.client.set("page", page, noreply=False)
        keys = [f"key{number}" for number in range(KEYS)]
        self.note("get", [self.timed(self.client.get, "key1", small) for _ in range(count)])
        self.note("page", [self.timed(self.client.get, "page", page) for _ in range(count // 10)])
        many = {key: small for key in keys}
        self.note("get_many", [self.timed(self.client.get_many, keys, many) for _ in range(count // 50)])
        self.note("set", [self.timed(lambda key: self.client.set(key, small, noreply=False), "key1", True)
                          for _ in range(count)])
        self.contended(count // 100, small)

    def contended(self, count, small):
        """Gets while two threads compute."""
        goes_on = [True]

        def compute():
            number = 0
            while goes_on[0]:
                number += 1

        threads = [threading.Thread(target=compute) for _ in range(2)]
        for thread in threads:
            thread.start()
        self.note("contended", [self.timed(self.client.get, "key1", small) for _ in range(count)])
        goes_on[0] = False
        for thread in threads:
            thread.join()

    def timed(self, call, argument, expected):
        start = time.perf_counter_ns()
        got = call(argument)
        taken = time.perf_counter_ns() - start
        if got != expected:
            fail(f"{argument!r} gives {got!r:.80}")
        return taken / 1e3

    def note(self, what, times):
        self.found.setdefault(f"{what}.p50", []).append(statistics.median(times))
        self.found.setdefault(f"{what}.p99", []).append(sorted(times)[len(times) * 99 // 100])


def report(bench, sides):
    names = {"get.p50": "get of 200 B, p50", "get.p99": "get of 200 B, p99", "set.p50": "set of 200 B, p50",
             "page.p50": "get of 64 KiB, p50", "get_many.p50": "get of 100 keys, p50",
             "contended.p50": "get of 200 B beside two computing threads, p50"}
    for row, what in names.items():
        for name, one in sides.items():
            bar = 8 if (row, name) == ("get.p50", "near") else None
            bench.row(f"{row}.{name}", f"{name}: {what}", one.found[row], "us", at_most=bar)
        for name in list(sides)[1:]:
            bench.row(f"ratio.{row}.{name}_over_near", f"{name} over near: {what}",
                      ratios(sides[name].found[row], sides["near"].found[row]), "ratio")
    bench.finish()


def import_package():
    """Makes the package importable with the extension that was built."""
    named = os.environ.get("REBATE_PYTHON_LIBRARY")
    built = [ROOT / "target" / profile / "lib_rebate.so" for profile in ("release", "debug")]
    library = next((path for path in ([pathlib.Path(named)] if named else built) if path.exists()), None)
    if library is None:
        fail(f"no {named or built[0]}: cargo build --release -p rebate-python")
    folder = SCRATCH / "package"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "python" / "rebate", folder / "rebate")
    shutil.copy(library, folder / "rebate" / "_rebate.abi3.so")
    sys.path.insert(0, str(folder))


def ensure_pymemcache():
    """Continues in an environment that has pymemcache. If there is none, makes one under target/."""
    try:
        import pymemcache  # noqa: F401
        return
    except ImportError:
        place = SCRATCH / "python_client"
    python = place / "bin" / "python3"
    if sys.prefix == str(place):
        fail(f"{place} has no working pymemcache: delete it to make it anew")
    if not python.exists():
        venv.create(place, with_pip=True)
    if subprocess.run([python, "-c", "import pymemcache"], capture_output=True).returncode:
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", PYMEMCACHE])
        if done.returncode:
            fail(f"cannot install {PYMEMCACHE} in {place}")
    os.execv(python, [python, *sys.argv])


if __name__ == "__main__":
    main()
