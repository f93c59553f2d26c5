#!/usr/bin/env python3
"""How long does it take until a change of the data has a dictionary of its own?

Each run has its own `rebate memcached` with one thread, and all run side by side. A client writes records of one class
of keys at 100 per second: first JSON records, whose dictionary is trained, and then PHP sessions under the same names.
The share of the logical bytes that is stored is read every two seconds. It has recovered in the first two seconds from
which on it stays within a tenth of its mean in the last 30. If it never gets better, it takes the whole time. Criterion:
it recovers within two minutes, as docs/operating/dictionaries.md says.
"""

import threading
import time

from _records import json_record, session_record
from harness import Bench, fail, rebate_memcached

WRITES_PER_S = 100
STEP_S = 2
BEFORE_S = 100
AFTER_S = 210
LAST_STEPS = 15
TOLERANCE = 1.1


def main():
    bench = Bench("drift", __doc__)
    times = (4, 6) if bench.quick else (BEFORE_S, AFTER_S)
    runs = 2 if bench.quick else bench.flags.runs
    found = [None] * runs

    def one(at):
        with rebate_memcached("-m", "64") as server:
            phases = []
            for name, record, seconds in zip(("JSON", "sessions"), (json_record, session_record), times):
                phases.append(shares(server, record, seconds))
                print(f"  run {at + 1}: {name} written for {seconds} s", flush=True)
            found[at] = phases

    threads = [threading.Thread(target=one, args=(at,)) for at in range(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in found:
        fail("a write was refused, or a run has ended with the error above")
    recovered, first, last = [], [], []
    for _, after in found:
        steady = after[-LAST_STEPS:]
        usual = sum(steady) / len(steady)
        late = [at for at, share in enumerate(after) if share > TOLERANCE * usual]
        # Without a dictionary of its own, every share is alike.
        recovered.append(STEP_S * (late[-1] + 1 if late else len(after)))
        first.append(after[0])
        last.append(usual)
    bench.row("share.before", "stored bytes per byte, JSON at the end", [before[-1] for before, _ in found], "ratio")
    bench.row("share.changed", "stored bytes per byte, the first sessions", first, "ratio")
    bench.row("share.after", "stored bytes per byte, the last sessions", last, "ratio")
    bench.row("recovered", "time until sessions are stored like the last ones", recovered, "s", at_most=120)
    bench.finish()


def shares(server, record, seconds):
    """Writes records for so long. Returns the stored bytes per byte of every step."""
    found = []
    with server.connect() as connection, connection.makefile("rb") as reader:
        due, number = time.monotonic(), 0
        before = written(server)
        for _ in range(seconds // STEP_S):
            for _ in range(STEP_S * WRITES_PER_S):
                value = record(number)
                connection.sendall(b"set rec:%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
                if (answer := reader.readline()) != b"STORED\r\n":
                    fail(f"a record was answered {answer}")
                number += 1
                due += 1 / WRITES_PER_S
                time.sleep(max(due - time.monotonic(), 0))
            after = written(server)
            found.append((after[1] - before[1]) / (after[0] - before[0]))
            before = after
    return found


def written(server):
    stats = dict(line.split()[1:3] for line in server.ask("stats rebate"))
    return int(stats["logical_bytes_written"]), int(stats["stored_bytes_written"])


if __name__ == "__main__":
    main()
