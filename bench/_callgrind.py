"""Controls a server under valgrind's callgrind, for the benchmarks that count instructions."""

import subprocess

from harness import PATIENCE_S, fail

# One second after its start, a server gives back pages of the program. A count begins after this time.
START_S = 3


def control(server, what):
    words = ["callgrind_control", what, str(server.child.pid)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode or "Error" in done.stdout + done.stderr:
        fail(f"{' '.join(words)}: {done.stdout}{done.stderr}")


def profile_of(folder, op):
    for path in sorted(folder.glob("out.*"), reverse=True):
        if f"desc: Trigger: dump {op}\n" in path.read_text(errors="replace"):
            return path
    fail(f"callgrind wrote no profile of {op}: {[path.name for path in folder.iterdir()]}")
