#!/usr/bin/env python3
"""How far is `rebate estimate` from what Rebate then does?

Each data set is written to a memcached until it evicts. `rebate estimate` reads that memcached, and its answer is
kept. Then the same records are written to `rebate memcached` with the same `-m`, and what it holds and stores is
compared with the answer. Both sides are compared as they are in the long run: Rebate has chosen its dictionaries before
anything counts, and caches are full.

The cores are compared with the CPU time of the same requests to Rebate with compression on and off, without the thread
that trains dictionaries. For the hit ratio, a client reads keys of a Zipf distribution, and writes what it misses. It
does so on memcached, while `rebate estimate` reads that, and on Rebate. Before, all keys are written to both, the most
popular ones last, and the client reads until its hit ratio changes no more.

The last rows are the 99th percentile of a load on memcached while it is read, and without a reader. The reader has a
core of its own there, as on another host.

With --no-dictionaries, Rebate has none, and the figures without dictionaries are compared.
"""

import functools
import itertools
import json
import os
import random
import statistics
import time

from _records import html_record, json_record, protobuf_record, random_record, session_record
from harness import (PATIENCE_S, Bench, estimate_report, fail, load_report, memcached, placed, ratios, rebate,
                     rebate_memcached, start_estimate, start_load, us)

MEMORY_MIB = 32
BATCH = 200
GETS = 100_000
GETS_PER_SET = 4
RATE = 5_000
# The records whose stored size is measured.
STORED_RECORDS = 20_000
# The client of the hit ratio: the keys for each item that memcached holds, and the skew of their popularity.
KEYS_PER_ITEM = 4
ZIPF_ALPHA = 0.9
WATCHED_GETS_PER_S = 20_000
# As long as a user may wait who wants to know the hit ratio well.
WATCH_S = 60
# The client has read long enough when two hit ratios in a row differ by at most this share of the gets.
STEADY = 0.002
WINDOWS_MAX = 12
# Twice the samples of one training.
SAMPLES = 2_000


def main():
    bench = Bench("estimate", __doc__, flags=add_flags, runs=3)
    os.environ["REBATE_VALUES__DICTIONARIES"] = str(not bench.flags.no_dictionaries).lower()
    chosen = bench.flags.only or (["html", "p99"] if bench.quick else [*DATA_SETS, "p99"])
    unknown = set(chosen) - {*DATA_SETS, "p99"}
    if unknown:
        fail(f"--only {' '.join(unknown)}: valid are {' '.join(DATA_SETS)} p99")
    sets = {name: functools.cache(record) for name, record in DATA_SETS.items() if name in chosen}
    # With less, there is no memory for a dictionary.
    memory_mib = 8 if bench.quick else MEMORY_MIB
    pairs = {name: {what: [] for what in LIMITS} for name in sets}
    p99 = {"alone": [], "read": []}
    for _ in bench.each_run():
        for name, record in sets.items():
            found = compared(record, memory_mib, bench)
            record.cache_clear()
            print(f"  {name}: {json.dumps(found)}", flush=True)
            for what, pair in found.items():
                pairs[name][what].append(pair)
        if "p99" in chosen:
            for side, value in zip(p99, p99_us(memory_mib, bench.quick)):
                p99[side].append(value)
            print(f"  p99 alone and while it is read: {p99}", flush=True)
    for name, of_set in pairs.items():
        for what, values in of_set.items():
            if values:
                add_rows(bench, name, what, values)
    if p99["read"]:
        for side, values in p99.items():
            bench.row(f"p99.{side}", f"p99 of memcached, {side}", values, "us")
        bench.row("ratio.p99", "p99 of memcached while it is read", ratios(p99["read"], p99["alone"]), "ratio",
                  at_most=1.05)
    if bench.flags.merge:
        add_earlier_rows(bench)
    bench.finish()


def add_earlier_rows(bench):
    """Adds the rows of the file of `--out` that this run does not have."""
    if not bench.flags.out or not bench.flags.out.exists():
        return
    new = {row["id"] for row in bench.rows}
    earlier = json.loads(bench.flags.out.read_text())["rows"]
    bench.rows = [row for row in earlier if row["id"] not in new] + bench.rows


def add_rows(bench, name, what, pairs):
    unit = {"cores": "us per get", "hit_ratio": "share"}.get(what, "ratio")
    for side, values in zip(("estimated", "measured"), zip(*pairs)):
        bench.row(f"{side}.{what}.{name}", f"{what}, {name}, {side}", values, unit)
    if what == "hit_ratio":
        errors, unit = [abs(estimated - measured) for estimated, measured in pairs], "share"
    else:
        errors, unit = [abs(estimated / measured - 1) for estimated, measured in pairs], "ratio"
    bench.row(f"error.{what}.{name}", f"{what}, {name}", errors, unit, at_most=LIMITS[what])


def add_flags(parser):
    parser.add_argument("--only", nargs="+", metavar="SET", help="measure these data sets, or p99, only")
    parser.add_argument("--no-dictionaries", action="store_true", help="compare the figures without dictionaries")
    parser.add_argument("--merge", action="store_true", help="keep the rows in the file of --out that are not measured now")


def compared(record, memory_mib, bench):
    """Returns pairs of what was estimated and what was measured."""
    memory = ("-m", str(memory_mib))
    with memcached(*memory) as server:
        count = filled(server, record)
        numbers = [int(name.removeprefix("key:")) for name in server.keys()]
        savings = savings_of(estimating(server, bench.quick), bench)
    with rebate_memcached(*memory) as server:
        await_choice(server, record, bench)
        # Twice, so that all values have the form that Rebate chooses once it knows them, and more than fit.
        for _ in range(2):
            write(server, record, range(int(1.25 * count * savings["items_held_ratio"]["value"])))
        held_by_rebate = int(server.stats()["curr_items"])
    stored_ratio = stored(record, random.Random(1).sample(numbers, min(STORED_RECORDS, len(numbers))), bench)
    found = {"stored_ratio": (savings["stored_ratio"]["value"], stored_ratio),
             "items_held_ratio": (savings["items_held_ratio"]["value"], held_by_rebate / len(numbers)),
             "hit_ratio": hit_ratio_gains(record, max(memory_mib // 2, 8), bench)}
    # Values that stay as they are need no cores, and a difference of zeros has no relative error.
    if stored_ratio < 0.95:
        estimated_us = savings["decompress_us"]["value"] + savings["compress_us"]["value"] / GETS_PER_SET
        found["cores"] = (estimated_us, codec_us(record, bench))
    return found


def hit_ratio_gains(record, memory_mib, bench):
    """Returns the rise of the hit ratio as it was estimated, and as Rebate then had it."""
    with memcached("-m", str(memory_mib)) as server:
        keys = KEYS_PER_ITEM * filled(server, record)
        warm(server, record, keys)
        draws = zipf_draws(keys, 2)
        running = estimating(server, bench.quick, seconds=1 if bench.quick else WATCH_S)
        counts = [0, 0]
        while running.poll() is None:
            due = time.monotonic() + BATCH / WATCHED_GETS_PER_S
            found = read(server, record, itertools.islice(draws, BATCH))
            counts = [sum(pair) for pair in zip(counts, found)]
            time.sleep(max(due - time.monotonic(), 0))
        estimated = savings_of(running, bench)["hit_ratio_gain"]["value"]
    with rebate_memcached("-m", str(memory_mib)) as server:
        await_choice(server, record, bench)
        warm(server, record, keys)
        gets, hits = read(server, record, itertools.islice(zipf_draws(keys, 2), counts[0]))
    return estimated, hits / gets - counts[1] / counts[0]


def warm(server, record, keys):
    """Writes all keys, the most popular ones last, and reads until the hit ratio is steady."""
    write(server, record, range(keys - 1, -1, -1))
    draws = zipf_draws(keys, 1)
    before = None
    for _ in range(WINDOWS_MAX):
        gets, hits = read(server, record, itertools.islice(draws, keys // 2))
        if before is not None and abs(hits / gets - before) <= STEADY:
            return
        before = hits / gets


def zipf_draws(keys, seed):
    """Yields numbers of keys for ever, the lower the more often."""
    weights = list(itertools.accumulate((number + 1) ** -ZIPF_ALPHA for number in range(keys)))
    draw = random.Random(seed)
    while True:
        yield from draw.choices(range(keys), cum_weights=weights, k=BATCH)


def read(server, record, numbers):
    """Reads keys, and writes those that are missing. Returns the gets and the hits."""
    gets = hits = 0
    with server.connect() as connection, connection.makefile("rb") as reader:
        while batch := list(itertools.islice(numbers, BATCH)):
            connection.sendall(b"get " + b" ".join(map(key, batch)) + b"\r\n")
            found = set()
            while (head := reader.readline().split())[:1] == [b"VALUE"]:
                reader.read(int(head[3]) + 2)
                found.add(head[1])
            missing = sorted({number for number in batch if key(number) not in found})
            connection.sendall(b"".join(set_command(number, record(number)) for number in missing))
            for _ in missing:
                reader.readline()
            gets += len(batch)
            hits += sum(key(number) in found for number in batch)
    return gets, hits


def filled(server, record):
    """Writes records until the server has evicted as many as it holds, and returns how many it holds."""
    first = 0
    while True:
        write(server, record, range(first, first + 5_000))
        first += 5_000
        stats = server.stats()
        if int(stats["evictions"]) >= int(stats["curr_items"]):
            return int(stats["curr_items"])


def stored(record, numbers, bench):
    """Writes these records to a Rebate that has room for all, and returns the stored bytes for each byte. Only the
    second time counts, when Rebate knows the values."""
    with rebate_memcached("-m", "512") as server:
        await_choice(server, record, bench)
        sums = []
        for _ in range(2):
            write(server, record, numbers)
            counts = dict(line.split(" ", 2)[1:] for line in server.ask("stats rebate"))
            sums.append([int(counts[name]) for name in ("stored_bytes_written", "logical_bytes_written")])
    (stored_before, logical_before), (stored_after, logical_after) = sums
    return (stored_after - stored_before) / (logical_after - logical_before)


def write(server, record, numbers):
    with server.connect() as connection, connection.makefile("rb") as reader:
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start:start + BATCH]
            connection.sendall(b"".join(set_command(number, record(number)) for number in batch))
            for number in batch:
                if reader.readline() != b"STORED\r\n":
                    fail(f"{server.words} did not store record {number}")


def set_command(number, value):
    return b"set %s 0 0 %d\r\n%s\r\n" % (key(number), len(value), value)


def key(number):
    return b"key:%07d" % number


def estimating(server, quick, seconds=1):
    """Starts `rebate estimate`."""
    return start_estimate(server, "--seconds", seconds, "--rate", 20_000, *(["--sample", 500] if quick else []))


def savings_of(running, bench):
    """Returns the figures of all values that a `rebate estimate` prints."""
    total = estimate_report(running)["total"]
    return total["without_dictionary"] if bench.flags.no_dictionaries else total


def codec_us(record, bench):
    """Returns the CPU time of compression for one get and its share of a set (us): the difference between Rebate with
    compression on and off, as a median."""
    differences = []
    for _ in range(1 if bench.quick else 3):
        off, on = (requests_us(record, mode, bench) for mode in ("off", "on"))
        differences.append(on - off)
    return statistics.median(differences)


def requests_us(record, mode, bench):
    """Returns the CPU time of a server for one get and its share of a set (us)."""
    gets = 2_000 if bench.quick else GETS
    draws = random.Random(3)
    with rebate("--store", "embedded", "--memory", "256MiB", "--compress", mode, "--set=server.threads=1") as server:
        count = gets // GETS_PER_SET
        commands = [b"".join(set_command(number, record(number)) for number in range(first, first + 50))
                    for first in range(0, count, 50)]
        if mode == "on":
            await_choice(server, record, bench)
        before = server.scheduled_s(besides="rebate-trainer")[0]
        with server.connect() as connection, connection.makefile("rb") as reader:
            for first, command in zip(range(0, count, 50), commands):
                connection.sendall(command)
                for _ in range(50):
                    reader.readline()
                for _ in range(GETS_PER_SET):
                    # Of all that were set, or what is read would still be in the caches of the core.
                    read_all(connection, reader, draws.choices(range(first + 50), k=50))
        return (server.scheduled_s(besides="rebate-trainer")[0] - before) / gets * 1e6


def await_choice(server, record, bench):
    """Writes records until Rebate has decided whether their class has a dictionary. Its trainer has the lowest
    priority, so this takes long on a busy machine."""
    if bench.flags.no_dictionaries:
        return
    end = time.monotonic() + PATIENCE_S
    while True:
        write(server, record, range(SAMPLES))
        forms = [line for line in server.ask("stats dictionaries") if ":form " in line]
        if forms and not any(line.endswith(" undecided") for line in forms):
            return
        if time.monotonic() > end:
            fail(f"{server.words} decides on no form: {forms}")
        time.sleep(0.1)


def read_all(connection, reader, numbers):
    connection.sendall(b"".join(b"get %s\r\n" % key(number) for number in numbers))
    for _ in numbers:
        head = reader.readline().split()
        if head[:1] != [b"VALUE"]:
            fail(f"a value is missing: {head}")
        reader.read(int(head[3]) + 2)
        reader.readline()


def p99_us(memory_mib, quick):
    """Returns the 99th percentile of a load on memcached (us): alone, and while memcached is read."""
    seconds = 1 if quick else 8
    arguments = ["--rate", RATE, "-d", f"{seconds}s", "--keys", 20_000, "--value-size", "200", "--payload", "json"]
    cores = sorted(os.sched_getaffinity(0))
    with placed(cores[:-1] or cores), memcached("-m", str(4 * memory_mib)) as server:
        load_report(start_load(server, *arguments))
        alone = load_report(start_load(server, *arguments, "--no-prepopulate"))
        running = start_load(server, *arguments, "--no-prepopulate")
        # The load warms up for a second before it measures.
        time.sleep(1)
        with placed(cores[-1:]):
            reader = start_estimate(server, "--seconds", f"{seconds}s")
        together = load_report(running)
        estimate_report(reader)
    return us(alone, which="p99_ns"), us(together, which="p99_ns")


def mixed_record(number):
    """Returns records of all shapes in turn. Their keys do not tell the shapes apart."""
    shapes = [json_record, session_record, protobuf_record, html_record]
    return shapes[number % len(shapes)](number)


DATA_SETS = {"json": json_record, "session": session_record, "protobuf": protobuf_record,
             "html": html_record, "random_1000": random_record(1_000), "mixed": mixed_record}
# The largest errors: of the hit ratio in shares of the gets, of the others relative.
LIMITS = {"stored_ratio": 0.03, "items_held_ratio": 0.05, "hit_ratio": 0.01, "cores": 0.2}


if __name__ == "__main__":
    main()
