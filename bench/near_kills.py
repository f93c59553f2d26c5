#!/usr/bin/env python3
"""What do clients and the server of near connections lose when either side is killed, stopped or ended under load?

Six clients (the example `endure` of rebate-client) use a cache over shared memory, and one over TCP. They get and set
values of 200 B to 64 KiB and compare each value with what they wrote. A hundred times, every 0.2 to 0.6 s, a client or the
server is killed (SIGKILL), ended (SIGTERM) or stopped (SIGSTOP) for up to half a second; what has ended is started again.
Then a hundred times only clients are, so that what the server holds can be compared.
Criteria: no wrong byte. No call takes ten seconds. After its clients have gone, the server has as many descriptors and
mappings of shared memory as before they came, and no bytes of near connections. A client that has survived has as many
descriptors and mappings as before it connected. A client that sees a wrong byte ends the run.
"""

import contextlib
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import time

from harness import BINARY, PATIENCE_S, Bench, Server, example, fail, held_port, need_example

ENDURE = example("endure")
STUCK_S = 10
NEAR_CLIENTS = [200, 200, 4096, 4096, 65536, 65536]
TCP_CLIENTS = [4096]
HOWS = {"kill": signal.SIGKILL, "end": signal.SIGTERM, "stop": signal.SIGSTOP}


class Cache:
    """The server, which is started again on the same port and path."""

    def __init__(self, folder, port):
        self.path, self.port = pathlib.Path(folder) / "near", port
        self.server = None
        self.start()

    def start(self):
        command = [BINARY, "serve", "--threads", "1", "--listen", f"127.0.0.1:{self.port}", "--near-listen", self.path,
                   "--admin-listen", "127.0.0.1:0"]
        is_ready = lambda server: self.port if "listening on " in server.log.read_text(errors="replace") else None
        self.server = Server(command, is_ready)

    def disturb(self, how, down_s):
        self.server.child.send_signal(HOWS[how])
        if how != "stop":
            self.server.child.wait(PATIENCE_S)
            self.server.stop()
        time.sleep(down_s)
        if how == "stop":
            self.server.child.send_signal(signal.SIGCONT)
        else:
            self.start()

    def held(self):
        """Returns the descriptors of the process, and its mappings of shared memory."""
        process = pathlib.Path(f"/proc/{self.server.child.pid}")
        maps = (process / "maps").read_text()
        return len(list((process / "fd").iterdir())), maps.count("memfd:rebate-shared")

    def settled(self):
        """Returns what the process holds once its clients have gone: the least of what is seen for a while."""
        seen = []
        for _ in range(50):
            seen.append(self.held())
            time.sleep(0.1)
        return [min(column) for column in zip(*seen)]


class One:
    """A client, which is started again after its end."""

    def __init__(self, cache, value_bytes, is_near):
        self.cache, self.value_bytes, self.is_near = cache, value_bytes, is_near
        self.reports = []
        self.start()

    def start(self):
        address = f"near:{self.cache.path}" if self.is_near else f"127.0.0.1:{self.cache.port}"
        command = [ENDURE, address, "--value-bytes", str(self.value_bytes), "--timeout-s", str(STUCK_S)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def disturb(self, how, down_s):
        self.child.send_signal(HOWS[how])
        if how != "stop":
            self.child.communicate(timeout=PATIENCE_S)
            if self.child.returncode != -HOWS[how]:
                fail(f"a client has ended with status {self.child.returncode}")
        time.sleep(down_s)
        if how == "stop":
            self.child.send_signal(signal.SIGCONT)
        else:
            self.start()

    def end(self):
        """Ends the client in order, and keeps what it reports."""
        said, _ = self.child.communicate(timeout=PATIENCE_S)
        if self.child.returncode != 0:
            fail(f"a client has ended with status {self.child.returncode}")
        self.reports.append(json.loads(said))


def main():
    bench = Bench("near_kills", __doc__, runs=1)
    need_example(ENDURE)
    times = 5 if bench.quick else 100
    draw = random.Random(1)
    for _ in bench.each_run():
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            port = stack.enter_context(held_port())
            cache = Cache(folder, port)
            stack.callback(lambda: cache.server.stop())
            both = phase(draw, cache, times, with_server=True)
            # What a first client leaves, such as the threads' own memory, stays.
            phase(draw, cache, 2, with_server=False)
            before = cache.settled()
            only = phase(draw, cache, times, with_server=False)
            after = cache.settled()
            report(bench, times, both + only, before, after, cache)
    bench.finish()


def phase(draw, cache, times, with_server):
    """Disturbs one process after the other, and returns the clients' reports."""
    clients = [One(cache, size, True) for size in NEAR_CLIENTS] + [One(cache, size, False) for size in TCP_CLIENTS]
    time.sleep(0.5)
    done = {}
    for _ in range(times):
        one = cache if with_server and draw.random() < 0.5 else draw.choice(clients)
        how = draw.choice(list(HOWS))
        one.disturb(how, draw.uniform(0, 0.5))
        key = (type(one).__name__, how)
        done[key] = done.get(key, 0) + 1
        time.sleep(draw.uniform(0.2, 0.6))
    print("disturbed:", ", ".join(f"{who} {how} {count}" for (who, how), count in sorted(done.items())), flush=True)
    for client in clients:
        client.end()
    return [report for client in clients for report in client.reports]


def report(bench, times, reports, before, after, cache):
    total = lambda name: sum(report[name] for report in reports)
    bench.row("disturbed", "times that a process was killed, ended or stopped", [2 * times], "times")
    bench.row("calls", "calls of the clients that were not killed last", [total("calls")], "calls")
    bench.row("failed", "calls that failed, because the server was gone or stopped", [total("failed")], "calls")
    bench.row("missing", "gets of values that a new server does not have", [total("missing")], "calls")
    bench.row("stuck", f"calls that took {STUCK_S} s", [total("timed_out")], "calls", at_most=0)
    longest = max(report["longest_us"] for report in reports)
    bench.row("longest", "longest call", [longest / 1e6], "s", at_most=STUCK_S)
    for at, name in enumerate(["descriptors", "mappings"]):
        held = max(abs(report[name]) for report in reports)
        bench.row(f"client.{name}", f"{name} that a client has left of a dropped connection", [held], "", at_most=0)
        bench.row(f"server.{name}", f"{name} of the server after its clients, more than before them",
                  [after[at] - before[at]], "", at_most=0)
    metrics = cache.server.metrics()
    bench.row("held", "bytes of near connections after the clients", [metrics["rebate_near_held_bytes"]], "bytes",
              at_most=0)


if __name__ == "__main__":
    main()
