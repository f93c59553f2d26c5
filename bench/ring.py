#!/usr/bin/env python3
"""What does a lost server of a ring cost the keys of the other servers, and how soon is it out and back?

Three memcached servers stand behind `rebate serve`. One of them has a fault:
- killed: it is killed, and started again after it is out.
- stopped: it is stopped by a signal, and continued.
- slow: its answers take 500 ms longer. Its keys are misses meanwhile (`store.lost_keys = "miss"`).
- slow_kept: the same with `store.lost_keys = "error"`. The server stays in the ring, and metrics name it as slow.
- unresolvable: it is killed and its name is no longer found. Later it is started, and the name is found.
- flapping: it is killed and started four times in a row.
Meanwhile one client reads keys of the other two servers, one at a time. The table has its errors, and its p99 from the
fault to the return over its p99 before the fault. The times are those until the metrics show that the server is out,
from the fault, and that it is back, from the end of the fault. The server that flaps need not get out, so it has only
the time until it is in for good. Starting a process takes time of all cores. So while the client reads before a server
flaps, another server is killed and started at the same pace, which is in no ring. The row
`p99_ratio_calm` compares with the time before that, and `cpu_ratio` is the CPU time of `rebate` while the server flaps
over that while the other one does.
The last rows count what 100 changes of the list by SIGHUP cost a client: its errors, and the keys that moved although
their server stayed.
Needs libnss_wrapper (Debian: apt-get install libnss-wrapper), which gives `rebate` names that can be withdrawn.
"""

import multiprocessing
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from harness import BINARY, PATIENCE_S, Bench, Server, fail, held_port, listening_port, memcached

KEYS = [f"key_{index}" for index in range(200)]
SLOW_S = 0.5
# The pause between two looks at the metrics.
POLL_S = 0.1
FAULTS = ["killed", "stopped", "slow", "slow_kept", "unresolvable", "flapping"]
NAME = "third.test"


def main():
    bench = Bench("ring", __doc__, runs=3)
    calm_s = 0.5 if bench.quick else 5
    found = {}
    for _ in bench.each_run():
        # libnss_wrapper reads its file again without a lock against lookups of other threads, and sometimes crashes the
        # process then. A measurement is repeated after that, but no test may be.
        for fault in [fault for fault in FAULTS if not (bench.quick and fault == "unresolvable")]:
            for name, value in faulty(fault, calm_s).items():
                found.setdefault((fault, name), []).append(value)
        for name, value in changed(4 if bench.quick else 100).items():
            found.setdefault(("changes", name), []).append(value)
    limits = {"out_s": 2, "named_s": 2, "back_s": 5, "errors": 0, "p99_ratio": 2, "moved": 0}
    units = {"errors": "errors", "moved": "keys", "p99_ratio": "ratio", "p99_ratio_calm": "ratio",
             "cpu_ratio": "ratio",
             "p99_before_us": "us"}
    for (fault, name), values in found.items():
        bench.row(f"{name}.{fault}", f"{fault}: {name}", values, units.get(name, "s"),
                  at_most=limits.get(name))
    bench.finish()


class Third:
    """The server that has the faults, on a port of its own."""

    def __init__(self, port):
        self.port = port
        self.server = None
        self.start()

    def start(self):
        self.server = memcached("-p", str(self.port))

    def kill(self):
        self.server.child.kill()
        self.server.child.wait()

    def stop(self):
        self.server.stop()


class SlowProxy(threading.Thread):
    """Passes connections on to a server, and delays each piece of an answer by `delay_s`."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.server_port, self.delay_s = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                return
            for ends in [(client, server, False), (server, client, True)]:
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    def copy(self, source, target, is_answer):
        try:
            while part := source.recv(1 << 16):
                if is_answer:
                    time.sleep(self.delay_s)
                target.sendall(part)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Names:
    """The hosts file of a process that is started with `environment`."""

    def __init__(self, folder):
        self.file = pathlib.Path(folder) / "hosts"
        self.environment = {"LD_PRELOAD": "libnss_wrapper.so", "NSS_WRAPPER_HOSTS": str(self.file)}
        loaded = subprocess.run(["true"], env={**os.environ, **self.environment}, capture_output=True, text=True)
        if loaded.stderr:
            fail(f"apt-get install libnss-wrapper: {loaded.stderr}")
        self.changes = 0
        self.add()

    def add(self):
        self._write(f"127.0.0.1 localhost\n127.0.0.1 {NAME}\n")

    def remove(self):
        self._write("127.0.0.1 localhost\n")

    def _write(self, text):
        self.file.write_text(text)
        # The library sees a change by the time in seconds.
        self.changes += 1
        os.utime(self.file, (self.changes, self.changes))


def serve(arguments, environment=None):
    command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--threads", "2"]
    return Server([*command, *arguments], listening_port, environment)


def faulty(fault, calm_s):
    with memcached() as first, memcached() as second, held_port() as port, tempfile.TemporaryDirectory() as folder:
        third = Third(port)
        proxy = SlowProxy(port) if fault.startswith("slow") else None
        names = Names(folder) if fault == "unresolvable" else None
        name = f"{NAME if names else '127.0.0.1'}:{proxy.port if proxy else port}"
        url = f"memcached://{first.address},{second.address},{name}"
        lost_keys = "miss" if fault == "slow" else "error"
        arguments = ["--store", url, f"--set=store.lost_keys={lost_keys}"]
        try:
            with serve(arguments, names.environment if names else None) as server:
                store(server, KEYS)
                others = [key for key in KEYS if not holds(third.server, key)]
                return watched(Fault(fault, third, proxy, names), server, name, others, calm_s)
        finally:
            third.stop()


class Fault:
    """A fault of the third server."""

    def __init__(self, kind, third, proxy, names):
        self.kind, self.third, self.proxy, self.names = kind, third, proxy, names

    def begin(self):
        if self.kind in ["killed", "unresolvable"]:
            if self.names:
                self.names.remove()
            self.third.kill()
        elif self.kind == "stopped":
            self.third.server.child.send_signal(signal.SIGSTOP)
        else:
            self.proxy.delay_s = SLOW_S

    def end(self):
        if self.kind in ["killed", "unresolvable"]:
            if self.names:
                self.names.add()
            self.third.start()
        elif self.kind == "stopped":
            self.third.server.child.send_signal(signal.SIGCONT)
        else:
            self.proxy.delay_s = 0


def watched(fault, server, name, others, calm_s):
    """Lets a client read while the fault comes and goes. Returns what was measured."""
    await_in(server, name, True)
    reads = multiprocessing.Queue()
    stop = multiprocessing.Event()
    reader = multiprocessing.Process(target=read, args=(server.port, others, stop, reads))
    reader.start()
    stay_calm(server, calm_s)
    calm_until = time.time()
    found = {}
    if fault.kind == "flapping":
        with held_port() as port:
            apart, ran_apart_s = flap(Third(port), server)
            apart.stop()
        await_in(server, name, True)
    begun = time.time()
    if fault.kind == "flapping":
        _, ran_s = flap(fault.third, server)
        found["back_s"] = await_in(server, name, True)
        found["cpu_ratio"] = ran_s / ran_apart_s
    elif fault.kind == "slow_kept":
        fault.begin()
        sample = f'rebate_ring_server_slow{{server="{name}"}}'
        found["named_s"] = await_value(lambda: server.metrics().get(sample), 1)
        fault.end()
        found["back_s"] = await_value(lambda: server.metrics().get(sample), 0)
    else:
        fault.begin()
        found["out_s"] = await_in(server, name, False)
        fault.end()
        found["back_s"] = await_in(server, name, True)
    stop.set()
    samples = reads.get(timeout=PATIENCE_S)
    reader.join()
    calm, before, after = parts(samples, calm_until, begun)
    found["errors"] = sum(not is_good for _, _, is_good in samples)
    found["p99_ratio"] = p99(after) / p99(before)
    if fault.kind == "flapping":
        found["p99_ratio_calm"] = p99(after) / p99(calm)
    found["p99_before_us"] = p99(before) * 1e6
    print(f"  {fault.kind}: {found}, {len(before)} reads before and {len(after)} after", flush=True)
    return found


def stay_calm(server, calm_s):
    """Waits. The metrics are read as often as during the fault, because this takes time of the server's cores too."""
    until = time.monotonic() + calm_s
    while time.monotonic() < until:
        server.metrics()
        time.sleep(POLL_S)


def flap(third, server):
    """Kills and starts a server four times. Returns it, and the time that `server` ran meanwhile (s)."""
    before_s = server.scheduled_s()[0]
    for _ in range(4):
        third.kill()
        time.sleep(0.3)
        third.start()
        time.sleep(0.3)
    return third, server.scheduled_s()[0] - before_s


def parts(samples, calm_until, begun):
    """Returns the times of good reads: in the calm, before the fault under the same load, and since the fault."""
    good = [(at, took) for at, took, is_good in samples if is_good]
    calm = [took for at, took in good if at < calm_until]
    same_load = [took for at, took in good if calm_until <= at < begun]
    return calm, same_load if len(same_load) > 100 else calm, [took for at, took in good if at >= begun]


def read(port, keys, stop, reads):
    """Reads keys one at a time. Gives a list of times: when, how long (s), and whether the value was right."""
    samples = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = connection.makefile("rb")
        while not stop.is_set():
            for key in keys:
                at, begun = time.time(), time.perf_counter()
                connection.sendall(b"get %s\r\n" % key.encode())
                head = lines.readline()
                is_good = head.startswith(b"VALUE ") and lines.readline() + lines.readline() == b"1\r\nEND\r\n"
                samples.append((at, time.perf_counter() - begun, is_good))
                time.sleep(0.0005)
    reads.put(samples)


def changed(changes):
    """Changes the list by SIGHUP while a client reads the keys of servers that stay."""
    with memcached() as first, memcached() as second, memcached() as third, tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rebate.toml"
        lists = [f"{first.address},{second.address}", f"{first.address},{second.address},{third.address}"]
        write_list(file, lists[1])
        with serve(["--config", file]) as server:
            store(server, KEYS)
            stay = [key for key in KEYS if not holds(third, key)]
            reads, stop = multiprocessing.Queue(), multiprocessing.Event()
            reader = multiprocessing.Process(target=read, args=(server.port, stay, stop, reads))
            reader.start()
            for change in range(changes):
                write_list(file, lists[change % 2])
                server.child.send_signal(signal.SIGHUP)
                await_value(lambda: server.metrics()["rebate_ring_changes_total"], change + 1)
            stop.set()
            samples = reads.get(timeout=PATIENCE_S)
            reader.join()
            wrong = sum(not is_good for _, _, is_good in samples)
            moved = sum(not holds(server, key) for key in stay)
            print(f"  changes: {wrong} of {len(samples)} reads wrong", flush=True)
            return {"errors": wrong, "moved": moved}


def write_list(file, servers):
    file.write_text(f'[store]\nurl = "memcached://{servers}"\ndistribution = "ketama-weighted"\n')


def store(server, keys):
    with server.connect() as connection:
        connection.sendall(b"".join(b"set %s 0 0 1\r\n1\r\n" % key.encode() for key in keys))
        lines = connection.makefile("rb")
        if any(lines.readline() != b"STORED\r\n" for _ in keys):
            fail("not every key was stored")


def holds(server, key):
    return len(server.ask(f"get {key}")) > 0


def await_in(server, name, is_in):
    sample = f'rebate_ring_server_in{{server="{name}"}}'
    return await_value(lambda: server.metrics().get(sample), float(is_in))


def await_value(found, wanted):
    """Returns how long it took until `found` returned the wanted value (s)."""
    begun = time.monotonic()
    while found() != wanted:
        if time.monotonic() > begun + PATIENCE_S:
            fail(f"{found()} is not {wanted}")
        time.sleep(POLL_S)
    return time.monotonic() - begun


def p99(times):
    return statistics.quantiles(times, n=100)[98]


if __name__ == "__main__":
    main()
