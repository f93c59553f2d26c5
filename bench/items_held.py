#!/usr/bin/env python3
"""How many items does `rebate memcached` hold where memcached holds 1?

Both servers get the same `-m`, one thread, and the same records: all are written twice with a pause in between, more
than fit, and then all are read back and compared. The records are four shapes of small values (JSON, a PHP session,
protobuf with 16 random bytes, an HTML fragment) and random bytes of several lengths, which nothing compresses.
RSS is read after the last get. The records are made from fixed seeds, so every run has the same bytes.

For JSON, sessions and HTML, `rebate serve` in front of a memcached with the same `-m` is measured, too. With --mcdc, so
is MC/DC for JSON and sessions, a fork of memcached 1.6.38 that compresses with a dictionary: its program is built from
the branch `mcdc` of github.com/VladRodionov/mcdc, and gets dictionaries of 64 KiB. All sides take turns.
"""

import contextlib
import functools
import pathlib
import tempfile
import time

from _records import html_record, json_record, protobuf_record, random_record, session_record
from harness import Bench, fail, memcached, ratios, rebate, rebate_memcached, turns

MEMORY_MIB = 32
BATCH = 200
RANDOM_BYTES = [16, 45, 64, 100, 256, 1_000, 1_500, 4_000, 20_000, 100_000, 300_000, 512_000]


def main():
    bench = Bench("items_held", __doc__, flags=add_flags)
    shapes = {"json": json_record, "session": session_record, "protobuf": protobuf_record,
              "html": html_record, **{f"random_{size}": random_record(size) for size in RANDOM_BYTES}}
    if bench.flags.only:
        unknown = set(bench.flags.only) - set(shapes)
        if unknown:
            fail(f"--only {' '.join(unknown)}: the shapes are {' '.join(shapes)}")
        shapes = {name: shapes[name] for name in bench.flags.only}
    elif bench.quick:
        shapes = {name: shapes[name] for name in ("html", "random_1000", "random_100000")}
    memory_mib = 2 if bench.quick else MEMORY_MIB
    for name, make in shapes.items():
        # The records are made once. That takes longer than to write them.
        record = functools.cache(make)
        count = max(6 * (memory_mib << 20) // (len(record(0)) // (6 if name in REQUIRED else 1) + 30) // 5, 100)
        sides = ["memcached", "rebate"]
        sides += ["front"] if name in REQUIRED_IN_FRONT and not bench.flags.alone else []
        sides += ["mcdc"] if bench.flags.mcdc and name in REQUIRED_OVER_MCDC else []
        found = {side: [] for side in sides}
        for run in bench.each_run():
            for side in turns(sides, run):
                with started(side, memory_mib, bench) as server:
                    rounds = 2 if side in ("memcached", "rebate") else SLAB_ROUNDS
                    found[side].append(held(server, record, count, rounds, bench.quick))
            print(f"  {name}: { {side: values[-1] for side, values in found.items()} }", flush=True)
        add_rows(bench, name, len(record(0)), found)
    bench.finish()


def add_rows(bench, name, size, sides):
    def over(side, other, number):
        return ratios([values[number] for values in sides[side]], [values[number] for values in sides[other]])

    least = REQUIRED.get(name, 1.3 if size <= 100 else 1.0)
    for side, values in sides.items():
        bench.row(f"items.{side}.{name}", f"items held by {side}, {name}", [items for items, _ in values], "items")
        bench.row(f"rss_mib.{side}.{name}", f"RSS of {side}, {name}", [mib for _, mib in values], "MiB")
    bench.row(f"ratio.items_held.{name}", f"items held, {name} ({size} B)", over("rebate", "memcached", 0), "ratio",
              at_least=least)
    bench.row(f"ratio.rss.{name}", f"RSS, {name}", over("rebate", "memcached", 1), "ratio", at_most=1.15)
    if "front" in sides:
        bench.row(f"ratio.items_held.front.{name}", f"in front of memcached, {name}", over("front", "memcached", 0),
                  "ratio", at_least=REQUIRED_IN_FRONT[name])
    if "mcdc" in sides:
        bench.row(f"ratio.items_held.mcdc.{name}", f"MC/DC over memcached, {name}", over("mcdc", "memcached", 0),
                  "ratio")
        bench.row(f"ratio.items_held.over_mcdc.{name}", f"Rebate over MC/DC, {name}", over("rebate", "mcdc", 0),
                  "ratio", at_least=REQUIRED_OVER_MCDC[name])


@contextlib.contextmanager
def started(side, memory_mib, bench):
    """Starts a server with this memory, and whatever it needs."""
    memory = ("-m", str(memory_mib))
    if side == "memcached":
        with memcached(*memory) as server:
            yield server
    elif side == "rebate":
        with rebate_memcached(*memory) as server:
            yield server
    elif side == "front":
        with memcached(*memory) as store:
            with rebate("--frame-version", "2", "--set=server.threads=1", "--store",
                        f"memcached://{store.address}") as server:
                yield server
    else:
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "mcdc.conf"
            config.write_text(MCDC_CONFIG.format(folder=folder))
            for name in ("dictionaries", "samples"):
                (config.parent / name).mkdir()
            with memcached(*memory, "-z", str(config), program=bench.flags.mcdc) as server:
                yield server


def add_flags(parser):
    parser.add_argument("--only", nargs="+", metavar="SHAPE", help="measure these shapes only")
    parser.add_argument("--alone", action="store_true", help="leave out `rebate serve` in front of memcached")
    parser.add_argument("--mcdc", metavar="PROGRAM", help="measure MC/DC, too, whose server this is")


def held(server, record, count, rounds, quick):
    """Writes `count` records several times and reads them back. Returns the items found and the RSS (MiB)."""
    with server.connect() as connection, connection.makefile("rb") as reader:
        for _ in range(rounds):
            for first in range(0, count, BATCH):
                numbers = range(first, min(first + BATCH, count))
                connection.sendall(b"".join(set_command(number, record(number)) for number in numbers))
                for number in numbers:
                    answer = reader.readline()
                    # memcached refuses an item if it cannot evict in time.
                    if answer != b"STORED\r\n" and not answer.startswith(b"SERVER_ERROR out of memory"):
                        fail(f"{server.words}: record {number} was answered {answer}")
            time.sleep(0.1 if quick else 2)
        found = 0
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            connection.sendall(b"get " + b" ".join(map(key, numbers)) + b"\r\n")
            while (head := reader.readline()) != b"END\r\n":
                _, name, _, size = head.split()
                value = reader.read(int(size) + 2)[:-2]
                if value != record(int(name[4:])):
                    fail(f"{server.words}: {name} reads back differently")
                found += 1
    return found, round(server.rss_bytes() / (1 << 20), 1)


def set_command(number, value):
    return b"set %s 0 0 %d\r\n%s\r\n" % (key(number), len(value), value)


def key(number):
    return b"key:%07d" % number


# Items held where memcached holds 1, with automatic dictionaries: of `rebate memcached`, and in front of a memcached.
REQUIRED = {"json": 2.8, "session": 2.8, "protobuf": 1.35, "html": 3.6}
REQUIRED_IN_FRONT = {"json": 2.0, "session": 1.8, "html": 2.2}
REQUIRED_OVER_MCDC = {"json": 1.4, "session": 1.4}
# memcached has moved its slabs to the sizes of compressed values by then, and holds no more after more rounds.
SLAB_ROUNDS = 8
# As in its README, but for the smaller dictionaries and more samples.
MCDC_CONFIG = """enable_comp=true
enable_dict=true
dict_dir={folder}/dictionaries
dict_size=64K
comp_level=3
min_comp_size=32
max_comp_size=256K
enable_training=true
retraining_interval=2h
min_training_size=0
ewma_alpha=0.20
retrain_drop=0.12
train_mode=fast
dict_retain_max=8
enable_sampling=true
sample_p=0.1
sample_window_duration=100
spool_dir={folder}/samples
spool_max_bytes=64MB
"""


if __name__ == "__main__":
    main()
