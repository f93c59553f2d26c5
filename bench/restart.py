#!/usr/bin/env python3
"""How long does `rebate memcached -e FILE` take to save its items at its end, and to load them at its start?

The store is filled with small random values, which nothing compresses. Then SIGTERM ends the process, and another one
starts with the same file. The time of saving is from the signal to the end of the process; the time of loading is what
the server reports. Both processes report the most memory that was resident. It may exceed -m by
a tenth, 8 MiB and what the program itself is assumed to take.
"""

import pathlib
import random
import signal
import tempfile
import time

from harness import BINARY, PATIENCE_S, Bench, Server, fail, listening_port

VALUE_BYTES = 100
# The bytes that an item takes besides its value: its key and what the store adds.
ITEM_BYTES = 33
# The memory of a server without values, as in server/src/memory.rs.
PROGRAM_MIB = 24
BATCH = 2_000


def main():
    bench = Bench("restart", __doc__, flags=add_flags, runs=1)
    memory_mib = 8 if bench.quick else bench.flags.memory_mib
    most_mib = memory_mib * 1.1 + 8 + PROGRAM_MIB
    found = {name: [] for name in ("save", "load", "save_rss", "load_rss")}
    for _ in bench.each_run():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "items"
            with start(file, memory_mib) as server:
                items = fill(server, memory_mib)
                took_s, peak_mib = end(server)
                found["save"].append(items / took_s)
                found["save_rss"].append(peak_mib)
            with start(file, memory_mib) as server:
                facts = dict(line.split(" ", 2)[1:] for line in server.ask("stats rebate"))
                if int(facts["restart:loaded_items"]) != items:
                    fail(f"{items} items were saved: {facts}")
                found["load"].append(items / max(int(facts["restart:duration_ms"]), 1) * 1e3)
                found["load_rss"].append(peak_rss_mib(server))
        print(f"  {items} items: {found}", flush=True)
    bench.row("items_per_s.save", "items saved in a second", found["save"], "1/s")
    bench.row("items_per_s.load", "items loaded in a second", found["load"], "1/s")
    bench.row("peak_rss.save", "most memory, filling and saving", found["save_rss"], "MiB", at_most=most_mib)
    bench.row("peak_rss.load", "most memory, loading", found["load_rss"], "MiB", at_most=most_mib)
    bench.finish()


def add_flags(parser):
    parser.add_argument("--memory-mib", type=int, default=1_024, metavar="N", help="the value of -m (default: 1024)")


def start(file, memory_mib):
    command = [BINARY, "memcached", "-l", "127.0.0.1", "-p", "-1", "-t", "2", "-u", "root", "-v",
               "-m", str(memory_mib), "-e", str(file)]
    return Server(command, listening_port)


def fill(server, memory_mib):
    """Stores random values in 95 % of the memory. Returns the number of items."""
    pool = random.Random(1).randbytes(1 << 20)
    count = int(memory_mib * 0.95 * (1 << 20)) // (VALUE_BYTES + ITEM_BYTES)
    with server.connect() as connection:
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            connection.sendall(b"".join(set_command(number, pool) for number in numbers))
        connection.sendall(b"mn\r\n")
        if connection.recv(4) != b"MN\r\n":
            fail(f"{server.words} did not take all items")
    return int(server.stats()["curr_items"])


def set_command(number, pool):
    place = number * 7919 % (len(pool) - VALUE_BYTES)
    return b"set k%010d 0 0 %d noreply\r\n%s\r\n" % (number, VALUE_BYTES, pool[place:place + VALUE_BYTES])


def end(server):
    """Ends the server. Returns how long it took (s) and the most memory that was resident (MiB)."""
    begun, peak_mib = time.monotonic(), peak_rss_mib(server)
    server.child.send_signal(signal.SIGTERM)
    while server.child.poll() is None:
        peak_mib = max(peak_mib, peak_rss_mib(server))
        if time.monotonic() > begun + PATIENCE_S:
            fail(f"{server.words} does not end")
        time.sleep(0.005)
    return time.monotonic() - begun, peak_mib


def peak_rss_mib(server):
    """Returns the most memory that was resident so far (MiB); 0 for a process that has ended."""
    try:
        status = pathlib.Path(f"/proc/{server.child.pid}/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
