#!/usr/bin/env python3
"""Does the training of dictionaries slow down requests?

`rebate memcached` has one thread and 256 MiB. A load of records at a fixed rate is measured while another client
writes records of one class of keys whose dictionary is trained (calm), and while it writes as many of one new class
after the other, each of which is sampled and trained (training). The phases take turns, and each run begins with another
one. Criterion: the p99 of the load while dictionaries are trained, over that in the calm, is at most 1.05. The last rows
are the dictionaries that were trained in a phase, and the share of a core that the trainer used.
"""

import itertools
import string
import threading
import time

from _records import json_record
from harness import PATIENCE_S, Bench, fail, load_report, ratios, rebate_memcached, start_load, turns, us

PHASES = ["calm", "training"]
RATE_PER_S = 5_000
# A class is tried once it has 1,000 samples.
RECORDS_PER_CLASS = 1_200
BATCH = 20
# Each record is another one, or two classes would get the same dictionary.
NUMBERS = itertools.count()
WRITES_PER_S = 1_200


def main():
    bench = Bench("training", __doc__)
    seconds = 2 if bench.quick else 8
    names = map("".join, itertools.product(string.ascii_lowercase, repeat=3))
    p99 = {phase: [] for phase in PHASES}
    trained, shares = [], []
    with rebate_memcached("-m", "256") as server:
        known = next(names)
        write(server, itertools.repeat(known, RECORDS_PER_CLASS), threading.Event())
        load(server, 2)
        await_forms(server)
        for run in bench.each_run():
            for phase in turns(PHASES, run):
                classes = itertools.repeat(known) if phase == "calm" else each_many_times(names)
                before, before_s = dictionaries(server), trainer_s(server)
                stop = threading.Event()
                writer = threading.Thread(target=write, args=(server, classes, stop))
                writer.start()
                p99[phase].append(us(load(server, seconds), which="p99_ns"))
                stop.set()
                writer.join()
                if phase == "training":
                    await_forms(server)
                    trained.append(len(dictionaries(server) - before))
                    shares.append((trainer_s(server) - before_s) / seconds)
            print(f"  p99 (us): {p99}, dictionaries trained: {trained}", flush=True)
    if not bench.quick and min(trained) == 0:
        fail("no dictionary was trained in one of the phases")
    for phase in PHASES:
        bench.row(f"p99.{phase}", f"p99 of gets, {phase}", p99[phase], "us")
    bench.row("ratio.p99", "p99 of gets, training over calm", ratios(p99["training"], p99["calm"]), "ratio",
              at_most=1.05)
    bench.row("dictionaries", "dictionaries trained in a phase", trained, "count")
    bench.row("trainer", "CPU of the trainer in a phase", shares, "cores")
    bench.finish()


def each_many_times(names):
    for name in names:
        yield from itertools.repeat(name, RECORDS_PER_CLASS)


def write(server, classes, stop):
    """Writes a record of each class in turn, at a fixed rate, until the classes end or `stop` is set."""
    due = time.monotonic()
    with server.connect() as connection, connection.makefile("rb") as reader:
        while not stop.is_set() and (names := list(itertools.islice(classes, BATCH))):
            records = [(name, number, json_record(number)) for name, number in zip(names, NUMBERS)]
            connection.sendall(b"".join(b"set %s:%d 0 0 %d\r\n%s\r\n" % (name.encode(), number, len(record), record)
                                        for name, number, record in records))
            for _ in records:
                if (answer := reader.readline()) != b"STORED\r\n":
                    fail(f"a record was answered {answer}")
            due += BATCH / WRITES_PER_S
            time.sleep(max(due - time.monotonic(), 0))


def load(server, seconds):
    # The names of so few keys are two characters of which the first is a digit, so that they are of few classes. With
    # long random names, the load would make all the classes that a server keeps apart.
    names = ["--keys", 640, "--key-size", 2]
    return load_report(start_load(server, "--rate", RATE_PER_S, "-c", 4, "--value-size", 200, "--payload",
                                  "record-json", *names, "-d", f"{seconds}s"))


def trainer_s(server):
    """Returns the time that the trainer ran."""
    return server.scheduled_s()[0] - server.scheduled_s(besides="rebate-trainer")[0]


def dictionaries(server):
    """Returns the dictionaries that classes use."""
    forms = [line.split()[-1] for line in server.ask("stats dictionaries") if ":form " in line]
    return set(forms) - {"undecided", "plain"}


def await_forms(server):
    """Waits until every class with many values has a form."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        stats = dict(line.split()[1:3] for line in server.ask("stats dictionaries"))
        undecided = [name for name, form in stats.items() if name.endswith(":form") and form == "undecided"]
        if not any(int(stats[name.replace(":form", ":values_written")]) >= RECORDS_PER_CLASS for name in undecided):
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main()
