#!/usr/bin/env python3
"""Runs the containers of every mode of the chart with Docker, as helm renders them, and kills each of them under load.

What a pod says is taken over: command, configuration, user, read-only root, capabilities, limit of memory and volumes.
The names of services and pods are names in a network of Docker's. `rebate load` sends 300 requests/s for ten seconds
(90 % gets of 500 keys, html values of 4 KiB, a set after every miss). After three seconds a container is killed, and two
seconds later it is started again. Then a load of two seconds follows. Every value that is read is compared with what was
written. Clients lose connections only if the container that they are connected to was killed.
- cache: a cache with its items in a volume
- frontend: a frontend with two compression services (mode compression) in front of two memcached
- node: a proxy in front of memcached, reached by a socket in a folder of the host
- sidecar: a program (the load itself) and Rebate with a common folder, in front of memcached

Usage: deploy/helm/kill_modes.py [--out FILE] [--only MODE...]
Needs helm, PyYAML, Docker's engine and the images of deploy/image.sh.
Exit codes: 0 nothing went wrong, 1 something did, 2 bad usage, 3 skipped: a tool or an image is missing.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from urllib.request import urlopen

CHART = pathlib.Path(__file__).resolve().parent / "rebate"
sys.path.insert(0, str(CHART.parent.parent.parent / "bench"))

USER = 10001
NETWORK = "rebate-modes"
LOAD = ["--json", "--rate", "300", "--keys", "500", "--value-size", "4KiB", "--set-on-miss", "--connections", "8",
        "--timeout", "10s"]
MEMCACHED = {"image": "rebate-memcached:local", "args": ["-m", "64", "-U", "0"]}


def skip(why):
    print(f"SKIPPED: {why}", file=sys.stderr)
    sys.exit(3)


def docker(*words, fails=True):
    done = subprocess.run(["docker", *map(str, words)], capture_output=True, text=True)
    if done.returncode and fails:
        sys.exit(f"docker {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout.strip()


def free_port():
    with harness.held_port() as port:
        return port


def rendered(mode, *values):
    """Returns the container of Rebate as the chart renders it, and its configuration."""
    settings = [word for value in ("image.repository=rebate", "image.tag=local", *values) for word in ("--set", value)]
    done = subprocess.run(["helm", "template", mode, str(CHART), "--kube-version", "1.36.0", "--set",
                           f"mode={mode}", *settings],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"helm template {mode}: {done.stderr.strip()}")
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    by_kind = {document["kind"]: document for document in documents}
    [workload] = [by_kind[kind] for kind in ("StatefulSet", "Deployment", "DaemonSet") if kind in by_kind]
    pod = workload["spec"]["template"]["spec"]
    [container] = [one for one in pod.get("initContainers", []) + pod["containers"] if one["name"] == "rebate"]
    return container, by_kind["ConfigMap"]["data"]["rebate.toml"]


class Deployment:
    """Containers in a network. They are removed at the end of the `with` block."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.names = []

    def __enter__(self):
        docker("network", "create", NETWORK)
        return self

    def __exit__(self, *_):
        if self.names:
            docker("rm", "--force", "--volumes", *self.names, fails=False)
        docker("network", "rm", NETWORK, fails=False)
        self.folder.cleanup()

    def place(self, name):
        """Returns a folder of the host that belongs to the containers' user."""
        place = pathlib.Path(self.folder.name) / name
        place.mkdir(exist_ok=True)
        os.chown(place, USER, USER)
        return place

    def memcached(self, name):
        self.run(name, [name], MEMCACHED["image"], MEMCACHED["args"], [])
        return name

    def pod(self, name, aliases, container, config, publish=()):
        """Starts Rebate's container of a pod."""
        files = self.place(f"{name}.config")
        (files / "rebate.toml").write_text(config)
        inside = container["securityContext"]
        limit = container["resources"]["limits"]["memory"].removesuffix("Mi")
        words = ["--user", f"{inside['runAsUser']}:{inside['runAsGroup']}", "--memory", f"{limit}m",
                 "--security-opt", "no-new-privileges"]
        words += ["--read-only"] if inside["readOnlyRootFilesystem"] else []
        words += [word for what in inside["capabilities"]["drop"] for word in ("--cap-drop", what)]
        for mount in container["volumeMounts"]:
            # The socket's folder is shared, as that of a node or a pod. The others are the pod's.
            local = {"config": files, "socket": self.place("socket")}.get(mount["name"])
            local = local or self.place(f"{name}.{mount['name']}")
            words += ["--volume", f"{local}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        # A container that is started again keeps a port that was named, and no other.
        words += [word for port in publish for word in ("--publish", f"127.0.0.1:{free_port()}:{port}")]
        self.run(name, aliases, "rebate:local", container["args"], words)
        self.await_ready(name)
        return name

    def run(self, name, aliases, image, arguments, words):
        words = [*words, "--network", NETWORK, *(word for alias in aliases for word in ("--network-alias", alias))]
        docker("run", "--detach", "--name", f"{NETWORK}-{name}", *words, image, *arguments)
        self.names.append(f"{NETWORK}-{name}")

    def await_ready(self, name):
        """Waits until the container is ready, as the chart's probe asks."""
        address = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
                         f"{NETWORK}-{name}")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                urlopen(f"http://{address}:9150/readyz", timeout=5).close()
                return
            except OSError as error:
                why = error
                time.sleep(0.1)
        sys.exit(f"{name} is not ready: {why}\n{docker('logs', f'{NETWORK}-{name}')}")

    def address(self, name, port):
        return docker("port", f"{NETWORK}-{name}", port).splitlines()[0]


class HostLoad:
    """A load that runs on the host."""

    def __init__(self, target):
        self.target = target

    def start(self, seconds, *more):
        command = [str(BINARY), "load", self.target(), *LOAD, "--duration", f"{seconds}s", "--warmup", "0s", *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class SidecarLoad:
    """A load that is a container of the pod, and shares only the socket's folder."""

    def __init__(self, deployment):
        self.socket = deployment.place("socket")

    def start(self, seconds, *more):
        command = ["docker", "run", "--rm", "--network", "none", "--user", f"{USER}:{USER}", "--read-only", "--volume",
                   f"{self.socket}:/run/rebate", "rebate:local", "load", "unix:/run/rebate/memcached", *LOAD,
                   "--duration", f"{seconds}s", "--warmup", "0s", *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def cache():
    with Deployment() as deployment:
        name = deployment.pod("cache", [], *rendered("cache", "insecure=true", "memoryMiB=64"), publish=[11211])
        yield deployment, HostLoad(lambda: deployment.address(name, 11211)), ["cache"], {"cache"}


@contextlib.contextmanager
def frontend():
    with Deployment() as deployment:
        stores = [deployment.memcached(f"memcached-{number}") for number in range(2)]
        services = []
        for number in range(2):
            pod = f"compression-rebate-{number}"
            container, config = rendered("compression", "insecure=true")
            services.append(deployment.pod(pod, [f"{pod}.compression-rebate-pods"], container, config))
        # helm takes a plain comma for the end of a value.
        store = "memcached://" + "\\,".join(stores)
        container, config = rendered("frontend", "insecure=true", f"store={store}",
                                     "compression.service=compression-rebate-pods", "compression.replicas=2",
                                     "config.runtime.offload_bytes_min=1000")
        name = deployment.pod("frontend", [], container, config, publish=[11211])
        load = HostLoad(lambda: deployment.address(name, 11211))
        yield deployment, load, [name, *services, *stores], {name}


@contextlib.contextmanager
def node():
    with Deployment() as deployment:
        store = deployment.memcached("memcached-0")
        name = deployment.pod("node", [], *rendered("node", f"store=memcached://{store}"))
        path = deployment.place("socket") / "memcached"
        yield deployment, HostLoad(lambda: f"unix:{path}"), [name, store], {name}


@contextlib.contextmanager
def sidecar():
    with Deployment() as deployment:
        store = deployment.memcached("memcached-0")
        values = ["sidecar.containers[0].name=web", "sidecar.containers[0].image=rebate:local"]
        name = deployment.pod("sidecar", [], *rendered("sidecar", f"store=memcached://{store}", *values))
        yield deployment, SidecarLoad(deployment), [name, store], {name}


MODES = {"cache": cache, "frontend": frontend, "node": node, "sidecar": sidecar}


def report_of(running):
    out, error = running.communicate()
    if not out:
        sys.exit(f"the load ended with {running.returncode}: {error}")
    return json.loads(out)


def failed(report):
    return sum(report[op]["errors"] for op in ("get", "set", "fill")) + report["unanswered"] + report["unsent"]


def kill(deployment, load, name):
    """Kills a container under load and starts it again. Returns the reports of this load and of one that follows."""
    running = load.start(10)
    time.sleep(3)
    docker("kill", f"{NETWORK}-{name}")
    time.sleep(2)
    docker("start", f"{NETWORK}-{name}")
    during = report_of(running)
    if not name.startswith("memcached"):
        deployment.await_ready(name)
    return during, report_of(load.start(2, "--no-prepopulate"))


def row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the results there, as JSON")
    parser.add_argument("--only", nargs="+", choices=MODES, metavar="MODE", help="these modes instead of all")
    flags = parser.parse_args()
    if not shutil.which("helm"):
        skip("helm is missing: scripts/setup.sh release installs it")
    if subprocess.run(["docker", "image", "inspect", "rebate:local", "rebate-memcached:local"],
                      capture_output=True).returncode:
        skip("Docker's engine does not run, or has no images: deploy/image.sh builds them")
    problems, rows = [], []
    row(["mode", "killed", "answered", "failed", "connections lost", "wrong values", "failed later"])
    row(["---"] * 7)
    for mode in flags.only or MODES:
        with MODES[mode]() as (deployment, load, names, fronts):
            for name in names:
                during, after = kill(deployment, load, name)
                wrong = during["wrong"]["count"] + after["wrong"]["count"]
                lost, later = during["connections"]["lost"], failed(after)
                answered = sum(during[op]["answered"] for op in ("get", "set", "fill"))
                row([mode, name, answered, failed(during), lost, wrong, later])
                for what, number in [("answered", answered), ("failed", failed(during)), ("lost", lost),
                                     ("wrong", wrong), ("later", later)]:
                    rows.append({"id": f"{what}.{mode}.{name}", "value": number})
                if wrong:
                    problems.append(f"{mode}: {wrong} values were wrong when {name} was killed")
                if lost and name not in fronts:
                    problems.append(f"{mode}: {lost} connections were lost when {name} was killed")
                if later:
                    problems.append(f"{mode}: {later} requests failed after {name} was back")
    if flags.out:
        result = {"name": "kill_modes", "machine": harness.machine(), "machine_class": harness.machine_class(),
                  "date": time.strftime("%Y-%m-%d"), "command": " ".join(["python3", *sys.argv]), "quick": False,
                  "rows": rows}
        flags.out.write_text(json.dumps(result, indent=1) + "\n")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


try:
    import harness
    import yaml
except ImportError as error:
    skip(f"a package is missing: {error}")
BINARY = harness.BINARY

if __name__ == "__main__":
    main()
