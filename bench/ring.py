#!/usr/bin/env python3
"""What does a lost server of a ring cost the keys of the other servers, and how soon is it out and back?

Three memcached servers stand behind `rebate serve`. One of them is killed and started again, stopped and continued,
slowed down by 500 ms, or killed and started four times in a row. Meanwhile one client reads keys of the other two
servers, one at a time. The table has its errors, and its p99 from the fault to the return over its p99 before the
fault. The times are those until the metrics show that the server is out, from the fault, and that it is back, from the
end of the fault. The server that flaps need not get out, so it has only the time until it is in for good.
The last rows count what 100 changes of the list by SIGHUP cost a client: its errors, and the keys that moved although
their server stayed.
"""

import multiprocessing
import pathlib
import signal
import socket
import statistics
import tempfile
import threading
import time

from harness import BINARY, PATIENCE_S, Bench, Server, fail, held_port, listening_port, memcached

KEYS = [f"key_{index}" for index in range(200)]
SLOW_S = 0.5
# The pause between two looks at the metrics.
POLL_S = 0.1
FAULTS = ["killed", "stopped", "slow", "flapping"]


def main():
    bench = Bench("ring", __doc__, runs=3)
    calm_s = 0.5 if bench.quick else 5
    found = {}
    for _ in bench.each_run():
        for fault in FAULTS:
            for name, value in faulty(fault, calm_s).items():
                found.setdefault((fault, name), []).append(value)
        for name, value in changed(4 if bench.quick else 100).items():
            found.setdefault(("changes", name), []).append(value)
    limits = {"out_s": 2, "back_s": 5, "errors": 0, "p99_ratio": 2, "moved": 0}
    units = {"out_s": "s", "back_s": "s", "errors": "errors", "p99_ratio": "ratio", "moved": "keys"}
    for (fault, name), values in found.items():
        bench.row(f"{name}.{fault}", f"{fault}: {name}", values, units.get(name, ""),
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


def serve(arguments):
    command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--threads", "2"]
    return Server([*command, *arguments], listening_port)


def faulty(fault, calm_s):
    with memcached() as first, memcached() as second, held_port() as port:
        third = Third(port)
        proxy = SlowProxy(port) if fault == "slow" else None
        name = f"127.0.0.1:{proxy.port if proxy else port}"
        url = f"memcached://{first.address},{second.address},{name}"
        try:
            with serve(["--store", url]) as server:
                store(server, KEYS)
                others = [key for key in KEYS if not holds(third.server, key)]
                return watched(fault, server, third, proxy, name, others, calm_s)
        finally:
            third.stop()


def watched(fault, server, third, proxy, name, others, calm_s):
    """Lets a client read while the fault comes and goes. Returns what was measured."""
    await_in(server, name, True)
    reads = multiprocessing.Queue()
    stop = multiprocessing.Event()
    reader = multiprocessing.Process(target=read, args=(server.port, others, stop, reads))
    reader.start()
    until = time.monotonic() + calm_s
    # The metrics are read as often as during the fault, because this takes time of the server's cores too.
    while time.monotonic() < until:
        server.metrics()
        time.sleep(POLL_S)
    begun = time.time()
    found = {}
    if fault == "flapping":
        for _ in range(4):
            third.kill()
            time.sleep(0.3)
            third.start()
            time.sleep(0.3)
    else:
        begin(fault, third, proxy)
        found["out_s"] = await_in(server, name, False)
        end(fault, third, proxy)
    found["back_s"] = await_in(server, name, True)
    stop.set()
    samples = reads.get(timeout=PATIENCE_S)
    reader.join()
    before = [took for at, took, is_good in samples if at < begun and is_good]
    after = [took for at, took, is_good in samples if at >= begun and is_good]
    found["errors"] = sum(not is_good for _, _, is_good in samples)
    found["p99_ratio"] = p99(after) / p99(before)
    print(f"  {fault}: {found}, {len(before)} reads before and {len(after)} after", flush=True)
    return found


def begin(fault, third, proxy):
    if fault == "killed":
        third.kill()
    elif fault == "stopped":
        third.server.child.send_signal(signal.SIGSTOP)
    else:
        proxy.delay_s = SLOW_S


def end(fault, third, proxy):
    if fault == "killed":
        third.start()
    elif fault == "stopped":
        third.server.child.send_signal(signal.SIGCONT)
    else:
        proxy.delay_s = 0


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
