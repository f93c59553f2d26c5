"""The base of all benchmarks: servers on free ports, processes observed through /proc, medians with their spread, and
one table and one JSON format for results. It does not decide what is compared.

A result is {name, machine, machine_class, date, command, quick, rows}. A row is {id, what, value, unit, spread, bar,
ok}: `value` is the median over the runs, `spread` is [least, greatest], `bar` is the criterion as text, and `ok` is
whether the criterion is met (both null without a criterion).
"""

import argparse
import base64
import contextlib
import datetime
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from urllib.parse import unquote
from urllib.request import urlopen

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "target" / "bench"
BINARY = pathlib.Path(os.environ.get("REBATE_BINARY", ROOT / "target" / "release" / "rebate"))
# The timeout of every wait (s). It is longer than any pause of a busy machine, so only a hang reaches it.
PATIENCE_S = 60
PAGE_BYTES = 64 << 10
PAGES_PER_FILE_MAX = 4
# The files that a benchmark of many connections needs besides them.
SPARE_FILES = 200


class Server:
    """A running server that accepts connections. It stops at the end of the `with` block that started it."""

    # The TLS context of all connections, if they use TLS.
    trust = None

    def __init__(self, command, port_of, env=None):
        self.folder = tempfile.TemporaryDirectory()
        self.log = pathlib.Path(self.folder.name) / "log"
        self.words = shlex.join(map(str, command))
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          env={**os.environ, **(env or {})})
        try:
            self.port = self._await(lambda: port_of(self), "a port")
            self._await(self._accepts, "an accepted connection")
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        """The address with its scheme, as the load generator needs it."""
        return f"tls://{self.address}" if self.trust else self.address

    def stop(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.folder.cleanup()

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.trust.wrap_socket(connection, server_hostname="127.0.0.1") if self.trust else connection

    def ask(self, line, end=b"END\r\n"):
        """Sends a command and returns the lines of the answer as text, without the last line."""
        with self.connect() as connection:
            connection.sendall(line.encode() + b"\r\n")
            answer = b""
            while not answer.endswith(end):
                part = connection.recv(1 << 16)
                if not part:
                    fail(f"{self.words} closed the connection after `{line}`")
                answer += part
        return answer[:-len(end)].decode().splitlines()

    def stats(self):
        """Returns the general statistics by name, as text."""
        return dict(line.split(" ", 2)[1:] for line in self.ask("stats"))

    def admin(self):
        """Returns the address of the admin pages. The server must be a `rebate` with `--admin-listen`."""
        lines = self.log.read_text(errors="replace").splitlines()
        admin = next((line.split()[-1] for line in lines if line.startswith("admin on ")), None)
        if admin is None:
            fail(f"{self.words} has no admin address")
        return admin

    def metrics(self):
        """Returns the samples of `/metrics` by name and labels."""
        with urlopen(f"http://{self.admin()}/metrics", timeout=PATIENCE_S) as page:
            samples = [line.rpartition(" ") for line in page.read().decode().splitlines()
                       if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in samples}

    def stored(self, key):
        """Returns the value of a key in the form in which this server stores it."""
        with self.connect() as connection:
            connection.sendall(b"get " + key.encode() + b"\r\n")
            with connection.makefile("rb") as reader:
                head = reader.readline().split()
                if head[:1] != [b"VALUE"]:
                    fail(f"no value under {key} in {self.words}: {head}")
                return reader.read(int(head[3]))

    def keys(self):
        """Returns every key. Only memcached supports this, and it lists only the keys that its crawler has seen."""
        lines = self.ask("lru_crawler metadump all")
        return [unquote(line.split()[0].removeprefix("key=")) for line in lines]

    def cpu_s(self):
        """Returns the user and system time of all threads so far (s)."""
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def scheduled_s(self, besides=""):
        """Returns the time that all threads ran, and the time that they waited for a core while ready to run (s). The
        threads with the name `besides` do not count."""
        threads = [path for path in self._threads("") if (path / "comm").read_text().strip() != besides]
        fields = [(thread / "schedstat").read_text().split() for thread in threads]
        return tuple(sum(int(field[which]) for field in fields) / 1e9 for which in (0, 1))

    def place(self, cores):
        """Moves the threads of the server to these cores."""
        for thread in self._threads(""):
            os.sched_setaffinity(int(thread.name), cores)

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10

    def _threads(self, file):
        return [thread / file for thread in pathlib.Path(f"/proc/{self.child.pid}/task").iterdir()]

    def _accepts(self):
        try:
            self.connect().close()
        except OSError:
            return None
        return True

    def _await(self, probe, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = probe()
            if found is not None:
                return found
            if self.child.poll() is not None:
                break
            time.sleep(0.01)
        fail(f"no {what} from {self.words}\n{self.log.read_text(errors='replace')}")


def memcached(*arguments, program="memcached"):
    """Starts memcached, or another program with its flags, on a free port. It has one thread unless `arguments` state
    another number."""
    folder = tempfile.mkdtemp()
    file = pathlib.Path(folder) / "port"

    def port_of(_):
        lines = file.read_text().splitlines() if file.exists() else []
        ports = [line.rpartition(" ")[2] for line in lines if line.startswith("TCP INET: ")]
        return int(ports[0]) if ports else None

    command = [program, *ONE_THREAD, "-U", "0", *user(), *arguments]
    try:
        return Server(command, port_of, {"MEMCACHED_PORT_FILENAME": str(file)})
    finally:
        shutil.rmtree(folder)


def rebate_memcached(*arguments, env=None):
    """Starts `rebate memcached` on a free port. It has one thread unless `arguments` state another number. `env` adds
    to the environment."""
    return Server([BINARY, "memcached", *ONE_THREAD, *user(), *arguments], listening_port, env)


ONE_THREAD = ["-l", "127.0.0.1", "-p", "-1", "-t", "1"]


def user():
    """Returns the flag without which root may not start memcached."""
    return ["-u", "root"] if os.geteuid() == 0 else []


def listening_port(server):
    """Returns the port on which a `rebate` listens, or none if it has not yet reported one."""
    lines = server.log.read_text(errors="replace").splitlines()
    ports = [line.rpartition(":")[2] for line in lines if line.startswith("listening on ")]
    return int(ports[0]) if ports else None


def rebate(*arguments):
    """Starts `rebate serve` on a free port."""
    limits = ["timeout_ms", "connect_timeout_ms"]
    patient = [f"--set=store.{limit}={PATIENCE_S * 1000}" for limit in limits]
    return Server([BINARY, "serve", "--listen", "127.0.0.1:0", *patient, *arguments], listening_port)


def compression_service(sockets, *arguments):
    """Starts a compression service on sockets, which `sockets` names by their kind (lane, grpc). Its port is that of its
    admin pages."""
    listens = [word for kind, path in sockets.items() for word in (f"--{kind}-listen", path)]

    def admin_port(server):
        lines = server.log.read_text(errors="replace").splitlines()
        is_up = all(any(line.startswith(f"{kind} on ") for line in lines) for kind in sockets)
        return int(server.admin().rpartition(":")[2]) if is_up else None

    command = [BINARY, "serve", "--role", "compression", "--admin-listen", "127.0.0.1:0", *listens, *arguments]
    return Server(command, admin_port)


def nutcracker(upstream):
    """Starts twemproxy with ketama over fnv1a in front of one server. Its statistics page also gets a port."""
    with tempfile.TemporaryDirectory() as folder, held_port() as port, held_port() as stats_port:
        return Server(nutcracker_command(pathlib.Path(folder), upstream, port, stats_port), lambda _: port)


def nutcracker_command(folder, upstream, port, stats_port):
    config = folder / "nutcracker.yml"
    config.write_text(f"pool:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n"
                      "  distribution: ketama\n  auto_eject_hosts: false\n"
                      f"  servers:\n   - {upstream.address}:1\n")
    return ["nutcracker", "-c", config, "-p", folder / "pid", "-a", "127.0.0.1", "-s", str(stats_port)]


@contextlib.contextmanager
def held_port():
    """Reserves a port within the block, so that no other process gets it. A server can still listen on the port."""
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("127.0.0.1", 0))
        yield own.getsockname()[1]


@contextlib.contextmanager
def placed(cores):
    """Runs all processes that are started within the block on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def load(target, *arguments):
    """Runs `rebate load` against a server and returns its report. A miss ends the benchmark."""
    report = load_report(start_load(target, *arguments))
    if report["get"]["misses"]:
        fail(f"{report['get']['misses']} gets of the load found nothing, though every key was set")
    if report["generator"]["was_bottleneck"]:
        print(f"note: the generator was the bottleneck against {target.address}: "
              f"{report['generator']['reason']}", flush=True)
    return report


def start_load(target, *arguments, timeout_s=PATIENCE_S):
    """Starts `rebate load`. Pass the result to `load_report`. SIGINT ends the load early and in order."""
    command = [BINARY, "load", target.url, "--json", "--timeout", f"{timeout_s}s",
               *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def load_report(running):
    """Waits for the end of a load and returns its report. A failed request or a wrong byte ends the benchmark."""
    out, error = running.communicate()
    words = shlex.join(map(str, running.args))
    if running.returncode != 0:
        fail(f"{words} ended with {running.returncode}\n{error}\n{out}")
    report = json.loads(out)
    # A load that is stopped early does not wait for the requests in flight.
    names = ["errors", "unsent"] + ([] if report["stopped_early"] else ["unanswered"])
    trouble = {name: report[name] for name in names if report[name]}
    if trouble:
        fail(f"{words}: {trouble}")
    return report


def start_estimate(server, *arguments):
    """Starts `rebate estimate` of a server. Pass the result to `estimate_report`."""
    command = [BINARY, "estimate", server.address, "--json", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def estimate_report(running):
    """Waits for the end of an estimate, and returns it."""
    # It times requests and trains, which takes most of a minute on a core that others use.
    out, error = running.communicate(timeout=5 * PATIENCE_S)
    if running.returncode != 0:
        fail(f"{shlex.join(map(str, running.args))} ended with {running.returncode}\n{error}")
    return json.loads(out)


def us(report, op="get", kind="latency", which="p50_ns"):
    return report[op][kind][which] / 1e3


def memcaslap(server, value_bytes, seconds, connections=16):
    """Runs memcaslap with 1 thread and 90 % gets. Returns its requests and its requests per second,
    including the first sets of its connections. A miss ends the benchmark."""
    command = ["memcaslap", "-s", server.address, "-T", "1", "-c", str(connections), "-X", str(value_bytes),
               "-t", f"{seconds}s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + PATIENCE_S)
    found = re.search(r"Ops: (\d+) TPS: (\d+)", done.stdout)
    missed = re.search(r"get_misses: (\d+)", done.stdout)
    if done.returncode != 0 or not found or int(found[1]) == 0:
        fail(f"{shlex.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    if missed and int(missed[1]):
        fail(f"{shlex.join(command)}: {missed[1]} misses")
    return int(found[1]), int(found[2])


class Bench:
    """One benchmark with its flags, its rows, its table and its JSON."""

    def __init__(self, name, about, flags=None, runs=5):
        parser = argparse.ArgumentParser(description=about,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--runs", type=int, default=runs, metavar="N",
                            help=f"runs of each side; rows are medians over them (default: {runs})")
        parser.add_argument("--quick", action="store_true",
                            help="one tiny run: shows that the benchmark works, measures nothing")
        parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the JSON there")
        if flags:
            flags(parser)
        self.flags = parser.parse_args()
        if self.flags.runs < 1:
            parser.error("--runs is at least 1")
        self.name, self.about = name, about
        self.quick = self.flags.quick
        self.runs = 1 if self.quick else self.flags.runs
        self.rows = []
        if not BINARY.exists():
            fail(f"no {BINARY}: cargo build --release -p cli")
        print(f"{about.strip()}\n\n{machine()}, load average {os.getloadavg()[0]:.1f}\n",
              flush=True)

    def each_run(self):
        for run in range(self.runs):
            print(f"run {run + 1} of {self.runs}", flush=True)
            yield run

    def row(self, row, what, values, unit, at_most=None, at_least=None):
        """Adds a row from one value per run. The median decides whether the criterion is met."""
        value = statistics.median(values)
        bar, ok = None, None
        if at_most is not None:
            bar, ok = f"<= {at_most:g}", value <= at_most
        if at_least is not None:
            bar, ok = f">= {at_least:g}", value >= at_least
        self.rows.append({"id": row, "what": what, "value": value, "unit": unit,
                          "spread": [min(values), max(values)], "bar": bar, "ok": ok})

    def finish(self):
        """Prints the table and writes the JSON. Exits with status 1 if a criterion is missed, unless the run is
        quick."""
        self._print()
        if self.flags.out:
            result = {"name": self.name, "machine": machine(), "machine_class": machine_class(),
                      "date": datetime.date.today().isoformat(),
                      "command": shlex.join(["python3", *sys.argv]), "quick": self.quick,
                      "rows": self.rows}
            self.flags.out.write_text(json.dumps(result, indent=1) + "\n")
        missed = [row["id"] for row in self.rows if row["ok"] is False]
        if self.quick:
            print("quick: no number here is a measurement")
        elif missed:
            sys.exit(f"missed: {', '.join(missed)}")

    def _print(self):
        head = ["what", "median", "unit", "least .. greatest", "bar", ""]
        words = {True: "ok", False: "MISSED", None: ""}
        table = [head] + [[row["what"], brief(row["value"]), row["unit"],
                           " .. ".join(map(brief, row["spread"])), row["bar"] or "",
                           words[row["ok"]]] for row in self.rows]
        widths = [max(len(line[column]) for line in table) for column in range(len(head))]
        for line in table:
            cells = [cell.rjust(width) if column == 1 else cell.ljust(width)
                     for column, (cell, width) in enumerate(zip(line, widths))]
            print("  ".join(cells).rstrip())


def html_pages(folder, count):
    """Returns `count` pages of 64 KiB of html, and their source as text. They are evenly spread slices of the real
    files under `folder`, or under /usr/share/doc. If `folder` has too few, the benchmark fails. If /usr/share/doc
    has too few, the load generator makes the pages."""
    roots = [pathlib.Path(folder)] if folder else [pathlib.Path("/usr/share/doc")]
    files = sorted(path for root in roots for path in root.rglob("*.html")
                   if path.is_file() and path.stat().st_size >= PAGE_BYTES)
    # Each file gives only a few pages, so that no single large file dominates the measurement.
    pages = [part for path in files for part in slices(path.read_bytes())[:PAGES_PER_FILE_MAX]]
    if len(pages) >= count:
        stride = len(pages) // count
        return pages[:stride * count:stride], f"slices of {len(files)} html files in {roots[0]}"
    if folder:
        fail(f"{folder} has html for {len(pages)} pages of 64 KiB; {count} are needed")
    with memcached("-m", "256") as server:
        load(server, "--keys", count, "--value-size", "64KiB", "--payload", "html",
             "--rate", 10, "-d", "1s", "--warmup", "0s", "--get-share", 1)
        return [server.stored(key) for key in server.keys()], "the load generator's html"


def slices(content):
    return [content[start:start + PAGE_BYTES]
            for start in range(0, len(content) - PAGE_BYTES + 1, PAGE_BYTES)]


def opened(server, count):
    """Opens connections and waits until the server holds them."""
    connections = [server.connect() for _ in range(count)]
    await_connections(server, count)
    return connections


def close(server, connections):
    for connection in connections:
        connection.close()
    await_connections(server, 0)


def use_all(connections, pages):
    """Sends one set and one get of a page on each connection."""
    for number, connection in enumerate(connections):
        use(connection, number % len(pages), pages[number % len(pages)])


def use(connection, number, page):
    """Sends one set and one get of the page. Any other reply than the expected one ends the benchmark."""
    connection.sendall(b"set page:%d 0 0 %d\r\n%b\r\n" % (number, PAGE_BYTES, page))
    expect(connection, b"STORED\r\n")
    connection.sendall(b"get page:%d\r\n" % number)
    expect(connection, b"VALUE page:%d 0 %d\r\n%b\r\nEND\r\n" % (number, PAGE_BYTES, page))


def expect(connection, wanted):
    found = bytearray()
    while len(found) < len(wanted):
        part = connection.recv(len(wanted) - len(found))
        if not part:
            fail("a connection was closed in the middle of an answer")
        found += part
    if found != wanted:
        fail(f"{bytes(found[:80])} instead of {wanted[:80]}")


def await_connections(server, count):
    """Waits until the server holds `count` connections besides the one that reads the statistics."""
    end = time.monotonic() + PATIENCE_S
    while True:
        held = int(server.stats()["curr_connections"])
        # The connection that reads the statistics counts too, and the previous one may still be counted.
        if 0 <= held - 1 - count <= 1:
            return
        if time.monotonic() > end:
            fail(f"{held} connections are held instead of {count}")
        time.sleep(0.05)


def settled_rss(server):
    """Returns the resident memory (bytes) when it has not changed for half a second, or after ten seconds."""
    last, since = server.rss_bytes(), time.monotonic()
    end = since + 10
    while time.monotonic() < end and time.monotonic() - since < 0.5:
        time.sleep(0.05)
        now = server.rss_bytes()
        if abs(now - last) > 64 << 10:
            last, since = now, time.monotonic()
    return server.rss_bytes()


def raise_file_limit(files):
    """Raises the file limit of this process and of the server that it starts. Each holds one end of every
    connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        fail(f"{files} open files are needed and the hard limit is {hard}: ulimit -Hn {files}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


def written(folder, contents):
    """Makes a new folder under target/bench with one file for each of `contents`."""
    place = SCRATCH / folder
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for number, content in enumerate(contents):
        (place / f"{number:04}").write_bytes(content)
    return place


def turns(sides, run):
    """Returns the sides in the order of a run. Each run begins with another one."""
    shift = run % len(sides)
    return sides[shift:] + sides[:shift]


def ratios(ours, theirs):
    return [mine / other for mine, other in zip(ours, theirs)]


def brief(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    model = fields.get("model name", os.uname().machine)
    numbers = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    return f"{model} ({numbers}), {os.cpu_count()} cores"


def machine_class():
    return f"{os.cpu_count()}c"


def example(name):
    """Returns the path of an example of rebate-client: beside the program, or what REBATE_NAME says."""
    return pathlib.Path(os.environ.get(f"REBATE_{name.upper()}", BINARY.parent / "examples" / name))


def need_example(path):
    if not path.exists():
        fail(f"no {path}: cargo build --release -p rebate-client --example {path.name}")


def sealing_keys(folder):
    """Returns a file with one new key for sealed values."""
    keys = folder / "keys.toml"
    secret = base64.b64encode(os.urandom(32)).decode()
    keys.write_text(f'active = 1\n[[key]]\nid = 1\nsecret = "{secret}"\n')
    keys.chmod(0o600)
    return keys


def fail(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")
