"""The stock Thrift library as the benchmarks use it: what its compiler makes of rpc/idl, its Python, and programs of
bench/rivals/thrift built against its C++. It measures nothing. What is missing ends a benchmark with status 0 and
says which package has it; in CI it is a failure, because there everything is installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from harness import ROOT, SCRATCH, fail

RIVALS = ROOT / "bench" / "rivals" / "thrift"
ROOM = SCRATCH / "thrift"
SERVICES = ["memcached", "post_storage", "unique_id"]


def skip(what):
    if "CI" in os.environ:
        fail(f"CI needs {what}")
    print(f"SKIPPED: this machine has no {what}")
    sys.exit(0)


def generated(language, options=""):
    """The folder with what the stock compiler makes of our IDL."""
    if not shutil.which("thrift"):
        skip("Thrift compiler (Debian: apt-get install thrift-compiler)")
    folder = ROOM / f"gen-{language}"
    folder.mkdir(parents=True, exist_ok=True)
    for service in SERVICES:
        idl = ROOT / "rpc" / "idl" / f"{service}.thrift"
        done(["thrift", "--gen", language + options, "-out", folder, idl])
    return folder


def python():
    """A Python that has the library, and its environment."""
    for name in ["/usr/bin/python3", sys.executable]:
        if subprocess.run([name, "-c", "import thrift"], stderr=subprocess.DEVNULL).returncode == 0:
            path = f"{generated('py')}:{RIVALS}"
            return name, {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return skip("Python library of Thrift (Debian: apt-get install python3-thrift)")


def cpp(name, quick):
    """A program of bench/rivals/thrift, optimised as our release builds are, unless it need not be fast."""
    # Its headers include Boost's, which its package does not ask for.
    headers = ["g++", "-fsyntax-only", "-x", "c++", "-include", "boost/scoped_array.hpp",
               "-include", "thrift/Thrift.h", "/dev/null"]
    if not shutil.which("g++") or subprocess.run(headers, capture_output=True).returncode:
        skip("C++ library of Thrift (Debian: apt-get install g++ libthrift-dev libboost-dev)")
    code = generated("cpp", ":templates,no_skeleton")
    source = RIVALS / f"{name}.cpp"
    program = ROOM / f"{name}{'-quick' if quick else ''}"
    newest = max(path.stat().st_mtime for path in [source, *(ROOT / "rpc" / "idl").iterdir()])
    if not program.exists() or program.stat().st_mtime < newest:
        optimise = "-O0" if quick else "-O3"
        # What the compiler generates has parameters that it does not use.
        warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-variable"]
        done(["g++", "-std=c++17", optimise, *warnings, "-pthread", f"-I{code}", source,
              "-o", program, "-lthrift"])
    return program


def done(command):
    """The output of a command that has to succeed."""
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode:
        fail(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def example(name, quick):
    """An example of the crate `rpc`, as the tests have built it where it need not be fast."""
    release = [] if quick else ["--release"]
    # Of the whole workspace: its dependencies are then those that are built already.
    build = ["cargo", "build", "--quiet", "--workspace", "--example", name, *release]
    if subprocess.run(build, cwd=ROOT).returncode:
        fail(f"cannot build rpc/examples/{name}.rs")
    return ROOT / "target" / ("debug" if quick else "release") / "examples" / name


def messages():
    """A folder of messages that the stock Python library wrote."""
    program, environment = python()
    folder = pathlib.Path(ROOM / "messages")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ran = subprocess.run([program, RIVALS / "messages.py", folder], env=environment)
    if ran.returncode:
        fail("the stock library wrote no messages")
    return folder
