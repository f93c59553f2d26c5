#!/usr/bin/env python3
"""Installs the files of scripts/release as an administrator would, and measures what that takes.

The .deb is installed by apt-get in a Debian 12 with systemd, the .rpm by dnf in another one. Its only other package of
rpm stands for Fedora's C library, and units are disabled by default, as in Fedora. Each package is installed, used,
upgraded under load, downgraded and removed. The load is `rebate load` with 300 requests/s over eight connections, beside
four clients that open a connection for every get.
Both images run with a read-only root, without capabilities and network, as the user that they name: the cache answers a
get, and the tools run `rebate demo` with memcached.
No registry is asked: debootstrap makes the machines, which are kept as the images rebate-test-deb and rebate-test-rpm.

Needs root, a Docker engine, debootstrap (Debian: apt-get install docker.io debootstrap), and what scripts/setup.sh
release installs. REBATE_BINARY is the program that loads (target/release/rebate).
Exit codes: 0 passed, 1 failed, 2 bad usage, 3 skipped: a tool is missing, or no Docker engine answers.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import harness
from harness import fail

HOST, PORT = "127.0.0.1", 11211
ADDRESS = f"{HOST}:{PORT}"
ITEM, KEPT = b"set kept 0 0 5\r\nvalue\r\n", b"VALUE kept 0 5\r\nvalue\r\nEND\r\n"
LOAD = ["--json", "--rate", "300", "--keys", "500", "--connections", "8", "--duration", "600s"]
LOAD_MIN = 1000
MIRROR = [os.environ["DEBIAN_MIRROR"]] if "DEBIAN_MIRROR" in os.environ else []
CLONE_NEWNET = 0x40000000
# systemd needs its own control groups and a few mounts; nothing of the host is shared.
SYSTEMD = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--network", "none",
           "--cgroupns", "private", "--tmpfs", "/run", "--tmpfs", "/tmp", "--entrypoint", "/sbin/init"]
LOCKED = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
          "--network", "none"]
IMAGE_USER = "10001"
PRESET = "/usr/lib/systemd/system-preset/99-default-disable.preset"
MEDIANS = [
    ("first_get_s", "from the installation to the first get", "s", {"at_most": 30}),
    ("exposure", "exposure, by systemd-analyze security", "", {"at_most": 1.9}),
    ("longest_s", "upgrade: longest time of a get on a new connection", "s", {}),
]
# Sums over all runs, because a median hides what fails seldom.
SUMS = [
    ("opened", "upgrades: gets on new connections", {}),
    ("refused", "upgrades: refused connections", {"at_most": 0}),
    ("unanswered", "upgrades: new connections closed without an answer", {}),
    ("answered", "upgrades: requests on open connections", {}),
    ("failed", "upgrades: failed requests on open connections", {"at_most": 0}),
    ("closed", "upgrades: open connections closed after an answer", {}),
    ("missed", "upgrades: gets of lost items", {"at_most": 0}),
    ("wrong", "upgrades: wrong values", {"at_most": 0}),
]


class Deb:
    suffix = "deb"
    included = "systemd,systemd-sysv,adduser"
    install = upgrade = "apt-get install --yes {}"
    downgrade = "apt-get install --yes --allow-downgrades {}"
    verify = "dpkg --verify rebate"
    remove = "apt-get purge --yes rebate"
    left = []

    @staticmethod
    def prepare(machine):
        pass


class Rpm:
    suffix = "rpm"
    included = "systemd,systemd-sysv,dnf,rpm"
    install = ("dnf install --assumeyes --disablerepo=* {} && "
               "systemctl enable --now rebate.socket rebate.service")
    upgrade = "dnf install --assumeyes --disablerepo=* {}"
    downgrade = "dnf downgrade --assumeyes --disablerepo=* {}"
    verify = "rpm --verify rebate"
    remove = "dnf remove --assumeyes --disablerepo=* rebate"
    # rpm leaves what an administrator has changed, and what the service has written.
    left = ["/etc/rebate/rebate.toml.rpmsave", "/var/lib/rebate/items",
            "/var/lib/rebate/items.lock"]

    @staticmethod
    def prepare(machine):
        """Installs a package that provides the names of Fedora's C library, which ours needs."""
        machine.sh(f"mkdir -p {pathlib.Path(PRESET).parent} && echo 'disable *' >{PRESET}")
        version = machine.sh("getconf GNU_LIBC_VERSION").split()[1]
        with tempfile.TemporaryDirectory() as folder:
            config, file = pathlib.Path(folder, "nfpm.yaml"), pathlib.Path(folder, "fedora.rpm")
            config.write_text(json.dumps({
                "name": "fedora", "arch": "noarch", "version": "1", "description": "names",
                "provides": [f"glibc = {version}", "libgcc"]}))
            run("nfpm", "package", "--config", config, "--packager", "rpm", "--target", file)
            machine.copy(file, "/root/fedora.rpm")
        machine.sh("rpm --install /root/fedora.rpm")


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command))
        fail(f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


@contextlib.contextmanager
def container(*words):
    """Starts a container, and moves this process with its later children into its network."""
    name = run("docker", "run", "--detach", *words)
    try:
        with open(f"/proc/{process_of(name)}/ns/net") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET):
                fail(f"the container's network: {os.strerror(ctypes.get_errno())}")
        yield name
    finally:
        run("docker", "rm", "--force", "--volumes", name)


def process_of(name):
    return run("docker", "inspect", "--format", "{{.State.Pid}}", name)


class Machine:
    """A container with systemd."""

    def __init__(self, name):
        self.name = name
        for _ in range(harness.PATIENCE_S):
            state = self._exec("systemctl is-system-running").stdout.strip()
            if state in ("running", "degraded"):
                return
            time.sleep(1)
        fail(f"systemd does not come up: {state}")

    def sh(self, script):
        """Runs a script inside and returns what it prints."""
        done = self._exec(script)
        if done.returncode:
            journal = self._exec("journalctl --no-pager -n 40 -u 'rebate.*'").stdout
            fail(f"{script} ended with {done.returncode}\n{done.stdout}{done.stderr}{journal}")
        return done.stdout.strip()

    def copy(self, file, path):
        run("docker", "cp", file, f"{self.name}:{path}")

    def process(self):
        return self.sh("systemctl show -P MainPID rebate.service")

    def _exec(self, script):
        return subprocess.run(["docker", "exec", self.name, "sh", "-ec", script],
                              capture_output=True, text=True)


def ask(request):
    """Sends a request on a new connection, and returns the answer."""
    with socket.create_connection((HOST, PORT), harness.PATIENCE_S) as connection:
        connection.sendall(request)
        answer = b""
        while not answer.endswith((b"END\r\n", b"STORED\r\n")):
            part = connection.recv(1 << 12)
            if not part:
                raise ConnectionError(f"{request} is answered by {answer}")
            answer += part
    return answer


class Clients:
    """Clients that open a connection for every get."""

    def __init__(self, count):
        self.answered = self.refused = self.failed = self.longest_s = 0
        self.lock, self.done = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.done.set()
        for thread in self.threads:
            thread.join()

    def _run(self):
        while not self.done.wait(0.002):
            began, error = time.monotonic(), None
            try:
                ask(b"get kept\r\n")
            except OSError as met:
                error = met
            refused = isinstance(error, ConnectionRefusedError)
            with self.lock:
                self.refused += refused
                self.failed += error is not None and not refused
                self.answered += error is None
                self.longest_s = max(self.longest_s, time.monotonic() - began)


def install(kind, image, file, older):
    """Installs, upgrades, downgrades and removes a package. Returns what was measured."""
    with container(*SYSTEMD, image) as name:
        machine = Machine(name)
        kind.prepare(machine)
        first, second = f"/root/1.{kind.suffix}", f"/root/2.{kind.suffix}"
        machine.copy(older, first)
        machine.copy(file, second)

        began = time.monotonic()
        machine.sh(kind.install.format(first))
        ask(b"get nothing\r\n")
        found = {"first_get_s": time.monotonic() - began}
        check_service(kind, machine)
        exposure = machine.sh("systemd-analyze security --no-pager rebate.service | tail -n 1")
        found["exposure"] = float(exposure.split()[-3])

        if ask(ITEM) != b"STORED\r\n":
            fail("an item is not stored")
        machine.sh("echo '# mine' >>/etc/rebate/rebate.toml && systemctl reload rebate.service")
        found |= under_load(lambda: replace(kind, machine, kind.upgrade.format(second)))
        replace(kind, machine, kind.downgrade.format(first))

        machine.sh(kind.remove)
        left = machine.sh("find /etc /usr /var/lib -path '*rebate*' ! -type d | sort").split()
        if left != kind.left:
            fail(f"after the removal there are {left}")
        with contextlib.suppress(ConnectionRefusedError):
            ask(b"get kept\r\n")
            fail("something answers after the removal")
    return found


def check_service(kind, machine):
    """Checks that the files are the package's, and that the service has the rights of its unit."""
    lines = machine.sh(f"{kind.verify} || true").splitlines()
    changed = [line for line in lines if not line.endswith("/etc/rebate/rebate.toml")]
    if changed:
        fail(f"files are not as in the package: {changed}")
    for state in ("is-active", "is-enabled"):
        machine.sh(f"systemctl {state} rebate.socket rebate.service")
    user = machine.sh("id -u rebate")
    status = machine.sh(f"cat /proc/{machine.process()}/status")
    fields = dict(line.split(":\t") for line in status.splitlines())
    rights = fields["NoNewPrivs"], int(fields["CapEff"], 16), fields["Uid"].split()
    if rights != ("1", 0, [user] * 4):
        fail(f"the process has other rights than its unit says: {rights}")


def replace(kind, machine, command):
    """Installs another version, which has to serve with the items and the changed configuration."""
    before = machine.process()
    machine.sh(command)
    answer = ask(b"get kept\r\n")
    if answer != KEPT:
        fail(f"{command}: the item is lost: {answer}")
    if machine.process() == before:
        fail(f"{command}: the service was not restarted")
    machine.sh("grep -qx '# mine' /etc/rebate/rebate.toml")
    check_service(kind, machine)


def under_load(act):
    """Does something under load, and returns what the clients saw."""
    load = subprocess.Popen([harness.BINARY, "load", ADDRESS, *LOAD], stdout=subprocess.PIPE,
                            text=True)
    clients = Clients(4)
    try:
        time.sleep(2)
        act()
        time.sleep(2)
    finally:
        clients.stop()
        load.send_signal(signal.SIGINT)
        out, _ = load.communicate()
    report = json.loads(out)
    requests = [report["get"], report["set"]]
    if min(clients.answered, sum(one["answered"] for one in requests)) < LOAD_MIN:
        fail(f"there was too little load: {clients.answered} gets\n{out}")
    return {"opened": clients.answered, "refused": clients.refused, "unanswered": clients.failed,
            "longest_s": clients.longest_s, "answered": sum(one["answered"] for one in requests),
            "failed": sum(one["errors"] for one in requests) + report["unsent"],
            "closed": report["connections"]["lost"], "missed": report["get"]["misses"],
            "wrong": report["wrong"]["count"]}


def machine_image(kind):
    """Returns an image of a Debian 12 with systemd, which is made once."""
    image = f"rebate-test-{kind.suffix}"
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode:
        with tempfile.TemporaryDirectory() as root:
            run("debootstrap", "--variant=minbase", f"--include={kind.included}", "bookworm", root,
                *MIRROR)
            run("sh", "-c", 'tar -C "$0" -c . | docker import - "$1"', root, image)
    return image


def imported(file):
    """Loads an image of a release into the engine. Returns its name and its size (MB)."""
    name = f"rebate-test-image:{file.name.removesuffix('.oci.tar')}"
    run("skopeo", "copy", "--insecure-policy", f"oci-archive:{file}", f"docker-daemon:{name}")
    return name, int(run("docker", "image", "inspect", "--format", "{{.Size}}", name)) / 1e6


def serve(image):
    """Starts the cache from its image, and gets an item."""
    with container(*LOCKED, image, "serve", "--listen", ADDRESS) as name:
        check_locked(name)
        end = time.monotonic() + harness.PATIENCE_S
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                ask(ITEM)
                break
            if time.monotonic() > end:
                fail(f"the cache does not serve: {run('docker', 'logs', name)}")
            time.sleep(0.05)
        if ask(b"get kept\r\n") != KEPT:
            fail("the cache in its image lost an item")


def demo(image):
    """Runs the demo in the image of tools, and returns its time (s)."""
    began = time.monotonic()
    with container(*LOCKED, "--tmpfs", "/tmp", image, "demo", "--store", "memcached") as name:
        check_locked(name)
        code = run("docker", "wait", name)
        took = time.monotonic() - began
        if code != "0":
            fail(f"the demo ended with {code}\n{run('docker', 'logs', name)}")
    return took


def check_locked(name):
    """Checks that the container's process is not root's, and that its root is read-only."""
    process = pathlib.Path(f"/proc/{process_of(name)}")
    status = (process / "status").read_text().splitlines()
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    [users] = [set(line.split()[1:]) for line in status if line.startswith("Uid:")]
    [root] = [fields[5].split(",") for fields in mounts if fields[4] == "/"]
    if users != {IMAGE_USER} or "ro" not in root:
        fail(f"{name} runs as {users}, and its root is {root}")


def lintian_errors(file):
    done = subprocess.run(["lintian", "--fail-on", "none", file], capture_output=True, text=True)
    print(done.stdout, end="")
    if done.returncode:
        fail(f"lintian ended with {done.returncode}\n{done.stderr}")
    return sum(line.startswith("E:") for line in done.stdout.splitlines())


def only(folder, pattern):
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        fail(f"{folder} has {len(files)} files {pattern}; one is needed")
    return files[0]


def flags(parser):
    parser.add_argument("release", type=pathlib.Path, metavar="DIR",
                        help="what scripts/release wrote")
    parser.add_argument("--older", type=pathlib.Path, metavar="DIR", required=True,
                        help="the release from which the packages are upgraded: an earlier one, or "
                        "what scripts/release --revision 0 wrote")


def main():
    bench = harness.Bench("package", __doc__, flags)
    tools = ("docker", "debootstrap", "lintian", "nfpm", "skopeo")
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing or subprocess.run(["docker", "info"], capture_output=True).returncode:
        missing = missing or ["an answer of Docker's engine"]
        print(f"SKIPPED: missing: {', '.join(missing)}", file=sys.stderr)
        sys.exit(3)
    release, older = bench.flags.release, bench.flags.older
    packages = {kind: (only(release, f"*.{kind.suffix}"), only(older, f"*.{kind.suffix}"))
                for kind in (Deb, Rpm)}
    cache, cache_mb = imported(only(release, "rebate-[0-9]*.oci.tar"))
    tools, tools_mb = imported(only(release, "rebate-tools-*.oci.tar"))
    # All images are made before this process is in the network of a container, which reaches no mirror.
    machines = {kind: machine_image(kind) for kind in packages}
    found, demos = {kind: [] for kind in packages}, []
    for _ in bench.each_run():
        for kind, files in packages.items():
            found[kind].append(install(kind, machines[kind], *files))
        serve(cache)
        demos.append(demo(tools))
    for kind, runs in found.items():
        for field, what, unit, limits in MEDIANS:
            bench.row(f"{kind.suffix}.{field}", f".{kind.suffix}: {what}",
                      [run[field] for run in runs], unit, **limits)
        for field, what, limits in SUMS:
            bench.row(f"{kind.suffix}.{field}", f".{kind.suffix}: {what}",
                      [sum(run[field] for run in runs)], "", **limits)
    bench.row("deb.lintian", ".deb: errors of lintian", [lintian_errors(packages[Deb][0])], "",
              at_most=0)
    bench.row("image.cache", "image of the cache", [cache_mb], "MB", at_most=40)
    bench.row("image.tools", "image of the tools", [tools_mb], "MB")
    bench.row("demo_s", "`rebate demo` in the image of the tools", demos, "s", at_most=120)
    bench.finish()


if __name__ == "__main__":
    main()
