#!/usr/bin/env python3
"""Counts the instructions per request of `rebate serve` in user space with valgrind's callgrind.

Each build serves gets and sets of 200 B without compression, from the embedded store and in front of memcached. The
client has one connection with one request at a time, and the server has one worker thread. A count is the number of
instructions for N requests, divided by N. It does not include start and end, because the server is asked for its count
before and after the requests. `--before` names another build of the same program, with whose counts this build's
counts are compared.
Needs valgrind (Debian: apt-get install valgrind).
"""

import pathlib
import re
import sys
import tempfile
import time

from _callgrind import START_S, control, profile_of
from harness import (BINARY, PATIENCE_S, ROOT, Bench, Server, fail, listening_port, memcached,
                     ratios)

VALUE = b"v" * 200
COMMANDS = {
    "get": (b"get key\r\n", b"VALUE key 0 200\r\n" + VALUE + b"\r\nEND\r\n"),
    "set": (b"set key 0 0 200\r\n" + VALUE + b"\r\n", b"STORED\r\n"),
}
WARMUP = 300


def main():
    bench = Bench("instructions", __doc__, flags)
    requests = 20 if bench.quick else 2_000
    builds = {"this": BINARY}
    if bench.flags.before:
        builds["before"] = bench.flags.before
    found = {}
    for _ in bench.each_run():
        for build, binary in builds.items():
            for route in ["embedded", "memcached"]:
                with memcached() as store, tempfile.TemporaryDirectory() as folder:
                    upstream = ["--store", f"memcached://{store.address}"]
                    arguments = upstream if route == "memcached" else []
                    counts = counted(binary, arguments, pathlib.Path(folder), requests)
                if bench.flags.profiles and not bench.quick:
                    keep(counts, bench.flags.profiles, build, route)
                for op, (_, count) in counts.items():
                    found.setdefault((route, op, build), []).append(count)
    for (route, op, build), counts in found.items():
        bench.row(f"instructions.{route}.{op}.{build}", f"{route}, {op}: {build} build", counts,
                  "instructions/request")
    for (route, op, build), counts in found.items():
        if build == "before":
            bench.row(f"ratio.instructions.{route}.{op}", f"{route}, {op}: this over before",
                      ratios(found[route, op, "this"], counts), "ratio", at_most=1.01)
    bench.finish()


def flags(parser):
    parser.add_argument("--before", type=pathlib.Path, metavar="BINARY",
                        help="another build to compare with: no more than 1 %% over its counts")
    parser.add_argument("--profiles", type=pathlib.Path, metavar="FOLDER",
                        help="keep callgrind's files of the last run there")


def counted(binary, arguments, folder, requests):
    """Returns the profile and the instructions per request of each command."""
    command = [sys.executable, ROOT / "scripts" / "valgrind.py", "--tool=callgrind",
               f"--callgrind-out-file={folder}/out", "--compress-strings=no", binary, "serve",
               "--listen", "127.0.0.1:0", "--threads", "1", "--workers", "0", "--compress", "off",
               *arguments, f"--set=store.timeout_ms={PATIENCE_S * 1000}"]
    counts = {}
    with Server(command, listening_port) as server, server.connect() as connection:
        # One second after its start, the server gives back pages of the program. This is no part of a request.
        time.sleep(START_S)
        for op, (request, answer) in reversed(COMMANDS.items()):
            ask(connection, request, answer, WARMUP)
            control(server, "--zero")
            ask(connection, request, answer, requests)
            control(server, f"--dump={op}")
            profile = profile_of(folder, op)
            total = re.search(r"^(?:totals|summary): (\d+)", profile.read_text(), re.MULTILINE)
            if not total:
                fail(f"{profile} has no total")
            counts[op] = (profile.read_text(), int(total[1]) / requests)
    return counts


def ask(connection, request, answer, times):
    for _ in range(times):
        connection.sendall(request)
        got = b""
        while len(got) < len(answer):
            part = connection.recv(1 << 16)
            if not part:
                fail("the server closed the connection")
            got += part
        if got != answer:
            fail(f"{request[:20]} was answered by {got[:40]}")


def keep(counts, folder, build, route):
    folder.mkdir(parents=True, exist_ok=True)
    for op, (profile, _) in counts.items():
        (folder / f"{build}.{route}.{op}.callgrind").write_text(profile)


if __name__ == "__main__":
    main()
