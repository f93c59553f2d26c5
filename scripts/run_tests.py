#!/usr/bin/env python3
"""Runs every test of the workspace: `cargo test --workspace`, with two test binaries at a time.

Many tests wait for processes, sockets and time-outs, and leave the cores idle. Their binaries run one after the other,
as with cargo. Beside them run first the binaries that measure no time, and then, at a lower priority, those that only
compute. The documentation's examples come last. The output of a binary is shown if it fails; the whole output is in
target/tests.

Example: scripts/run_tests.py
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Packages whose tests depend on no clock and on no other process.
COMPUTING = set("""api device experiments fuzz model planner policy protocol report rpc sim simulation store trace units
workload""".split())

# Long binaries of rebate-tests that only compare answers, however long these take.
PATIENT = {"clients", "command_table", "sealed", "store"}


def binaries():
    """Builds the tests, and returns (package, name, executable, package's folder) of each binary."""
    command = ["cargo", "test", "--workspace", "--tests", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    found = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message["executable"] or not message["profile"]["test"]:
            continue
        folder = pathlib.Path(message["manifest_path"]).parent
        package = folder.name if folder != ROOT / "tests" else "rebate-tests"
        found.append((package, message["target"]["name"], message["executable"], folder))
    return sorted(found)


def run(lane, niceness, failed, printing, **variables):
    """Runs the binaries one after the other, and appends the names of those that fail."""
    for package, name, executable, folder in lane:
        log = ROOT / "target/tests" / f"{package}-{name}.log"
        log.parent.mkdir(exist_ok=True)
        # As with cargo: in the package's folder, with the package's variables that tests read when they run.
        environment = dict(os.environ, CARGO_MANIFEST_DIR=str(folder), **variables)
        start = time.monotonic()
        with open(log, "wb") as output:
            process = subprocess.Popen([executable], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, preexec_fn=lambda: os.nice(niceness))
            _, status, usage = os.wait4(process.pid, 0)
        seconds, cpu = time.monotonic() - start, usage.ru_utime + usage.ru_stime
        with printing:
            if status:
                failed.append(f"{package}: {name}")
                sys.stdout.write(log.read_text(errors="replace"))
            print(f"{'FAILED' if status else 'ok':6} {seconds:6.1f} s, {cpu:5.1f} s of CPU  {package}: {name}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    tests = binaries()
    failed, printing = [], threading.Lock()
    patient = [test for test in tests if test[0] == "rebate-tests" and test[1] in PATIENT]
    computing = [test for test in tests if test[0] in COMPUTING]
    waiting = [test for test in tests if test not in patient and test not in computing]

    def patient_and_computing():
        # More of their tests than there are cores, since each waits most of the time.
        run(patient, 0, failed, printing, RUST_TEST_THREADS="4")
        run(computing, 10, failed, printing)

    beside = threading.Thread(target=patient_and_computing)
    beside.start()
    run(waiting, 0, failed, printing)
    beside.join()
    print(f"{len(tests)} test binaries, {len(failed)} failed", flush=True)
    examples = subprocess.run(["cargo", "test", "--workspace", "--doc", "--quiet"], cwd=ROOT)
    if failed:
        sys.exit("failed: " + ", ".join(sorted(failed)))
    sys.exit(examples.returncode)


if __name__ == "__main__":
    main()
