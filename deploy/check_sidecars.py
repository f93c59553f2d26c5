#!/usr/bin/env python3
"""Checks the examples of sidecars: that program and cache share the folder of the near socket, that Kubernetes' schema
knows the manifest, and that the program reads the cache's flags.

Usage: deploy/check_sidecars.py [REBATE]
Needs the Python package PyYAML; the schema needs kubernetes-validate (scripts/setup.sh release installs both).
Exit codes: 0 passed, 1 failed, 3 skipped: a package is missing.
"""

import pathlib
import subprocess
import sys

DEPLOY = pathlib.Path(__file__).resolve().parent
KUBERNETES = ["1.30", "1.33", "1.36"]


def problems_of(name, cache, program, rebate):
    """Compares the two containers: (words of the command, folder that each shares)."""
    words, folder = cache
    others, shared = program
    listens = words[words.index("--near-listen") + 1] if "--near-listen" in words else None
    problems = []
    if listens is None or pathlib.PurePath(listens).parent != pathlib.PurePath(folder):
        problems.append(f"{name}: the cache listens at {listens}, and shares {folder}")
    if shared != folder:
        problems.append(f"{name}: the cache shares {folder}, and the program {shared}")
    if f"near:{listens}" not in others:
        problems.append(f"{name}: the program does not use near:{listens}: {others}")
    if rebate:
        read = subprocess.run([rebate, *words, "--check-config"], capture_output=True, text=True)
        if read.returncode:
            problems.append(f"{name}: rebate refuses {words}: {read.stderr.strip()}")
    return problems


def compose(document, rebate):
    def part(name):
        service = document["services"][name]
        [(volume, folder)] = [mount.split(":") for mount in service["volumes"]]
        assert volume in document["volumes"], volume
        return service["command"], folder

    return problems_of("sidecar.yaml", part("cache"), part("program"), rebate)


def kubernetes(document, rebate):
    pod = document["spec"]["template"]["spec"]
    [cache], [program] = pod["initContainers"], pod["containers"]
    problems = [] if cache["restartPolicy"] == "Always" else ["the cache ends before the program starts"]

    def part(container):
        [mount] = container["volumeMounts"]
        assert mount["name"] in {volume["name"] for volume in pod["volumes"]}, mount
        return container["args"], mount["mountPath"]

    try:
        import kubernetes_validate
    except ImportError as error:
        print(f"without the schema: {error}")
    else:
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except Exception as error:  # pylint: disable=broad-except
                problems.append(f"Kubernetes {version}: {getattr(error, 'message', error)}")
    return problems + problems_of("sidecar-kubernetes.yaml", part(cache), part(program), rebate)


def main():
    try:
        import yaml
    except ImportError as error:
        print(error)
        return 3
    rebate = sys.argv[1] if len(sys.argv) > 1 else None
    problems = []
    for name, check in (("sidecar.yaml", compose), ("sidecar-kubernetes.yaml", kubernetes)):
        problems += check(yaml.safe_load((DEPLOY / name).read_text()), rebate)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
