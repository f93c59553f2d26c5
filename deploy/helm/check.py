#!/usr/bin/env python3
"""Checks the chart: helm's own checks, every mode against the schemas of three Kubernetes versions, the configuration
that each mode gets, and the values that the chart has to refuse.

Usage: deploy/helm/check.py [--rebate FILE]
  --rebate FILE   also lets this program read each rendered configuration

Needs helm, and the Python packages PyYAML and kubernetes-validate (scripts/setup.sh release installs them).
Exit codes: 0 passed, 1 failed, 2 bad usage, 3 skipped: helm or a package is missing.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CHART = pathlib.Path(__file__).resolve().parent / "rebate"
KUBERNETES = ["1.30", "1.33", "1.36"]
# The schemas of an operator are not in Kubernetes'.
FOREIGN = {"PodMonitor", "PrometheusRule"}
# What each mode must have beside its configuration.
WANTED = {
    "cache": {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "PrometheusRule"},
    "frontend": {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"},
    "compression": {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"},
    "node": {"DaemonSet", "NetworkPolicy"},
    "sidecar": {"Deployment", "PodDisruptionBudget"},
}
REFUSED = {
    "set access.secretName": "mode=cache",
    "needs store": "mode=frontend,insecure=true",
    "mode cache has none": "mode=cache,insecure=true,store=memcached://10.0.0.1",
    "needs sidecar.containers": "mode=sidecar,store=memcached://10.0.0.1",
    "listens only on a Unix socket": "mode=node,store=memcached://10.0.0.1,tls.secretName=x",
    "there is no TLS": "mode=cache,tls.clientAuth=require",
    "is reached over TLS": "mode=cache,insecure=true,otlp.address=tls://collector:4317",
    "there is no collector": "mode=cache,insecure=true,otlp.secretName=x",
    "others know the pods by name": "mode=cache,insecure=true,autoscaling.enabled=true",
    "below cpu.request": "mode=cache,insecure=true,cpu.request=2,cpu.limit=1",
    "at '/mode'": "mode=proxy,insecure=true",
    "at '/memoryMiB'": "mode=cache,insecure=true,memoryMiB=1",
}


def helm(*arguments):
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def containers(document):
    pod = document["spec"]["template"]["spec"]
    return [one for one in pod.get("initContainers", []) + pod["containers"] if one["name"] == "rebate"]


def check_workload(document, name, problems):
    pod = document["spec"]["template"]["spec"]
    [container] = containers(document)
    inside = container["securityContext"]
    if not (inside["runAsNonRoot"] and inside["readOnlyRootFilesystem"]
            and inside["capabilities"] == {"drop": ["ALL"]} and not pod["automountServiceAccountToken"]):
        problems.append(f"{name}: the container has more rights than it needs")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe not in container:
            problems.append(f"{name}: there is no {probe}")


def check_config(text, container, name, rebate, problems):
    # Files may hold secrets; their contents may not be here.
    secrets = re.findall(r"(?im)^\s*(?:password|secret|token|BEGIN [A-Z ]*PRIVATE).*", text)
    if secrets:
        problems.append(f"{name}: a secret in the ConfigMap: {secrets}")
    planned = int(re.search(r'memory_max = "(\d+)MiB"', text)[1])
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    if limit < planned * 1.1 - 1:
        problems.append(f"{name}: {limit} MiB for a process that may take a tenth more than {planned} MiB")
    if rebate:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            read = subprocess.run([rebate, "serve", "--config", file.name, "--print-config"],
                                  capture_output=True, text=True)
        if read.returncode:
            problems.append(f"{name}: rebate refuses its configuration: {read.stderr.strip()}")


def check_mode(values, rebate, validate, yaml, problems):
    mode = values.stem.removesuffix("-values")
    code, out, errors = helm("lint", str(CHART), "--strict", "--values", str(values))
    if code:
        problems.append(f"{mode}: helm lint: {out}{errors}")
    for version in KUBERNETES:
        name = f"{mode}, Kubernetes {version}"
        code, out, errors = helm("template", "test", str(CHART), "--values", str(values),
                                 "--kube-version", version + ".0")
        if code:
            problems.append(f"{name}: {errors}")
            continue
        documents = [document for document in yaml.safe_load_all(out) if document]
        by_kind = {document["kind"]: document for document in documents}
        absent = (WANTED[mode] | {"ConfigMap"}) - by_kind.keys()
        if absent:
            problems.append(f"{name}: there is no {', '.join(sorted(absent))}")
        for document in documents:
            if document["kind"] in FOREIGN:
                continue
            try:
                validate.validate(document, version, strict=True)
            except Exception as error:  # pylint: disable=broad-except
                problems.append(f"{name}: {document['kind']}: {getattr(error, 'message', error)}")
        [workload] = [by_kind[kind] for kind in ("StatefulSet", "Deployment", "DaemonSet") if kind in by_kind]
        check_workload(workload, name, problems)
        text = by_kind["ConfigMap"]["data"]["rebate.toml"]
        check_config(text, containers(workload)[0], name, rebate if version == KUBERNETES[0] else None, problems)
    return len(KUBERNETES)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rebate", metavar="FILE")
    arguments = parser.parse_args()
    try:
        import kubernetes_validate as validate
        import yaml
    except ImportError as error:
        print(f"SKIPPED: {error}", file=sys.stderr)
        return 3
    if not shutil.which("helm"):
        print("SKIPPED: helm is missing", file=sys.stderr)
        return 3
    problems, checked = [], 0
    for values in sorted((CHART / "ci").glob("*-values.yaml")):
        checked += check_mode(values, arguments.rebate, validate, yaml, problems)
    for message, values in REFUSED.items():
        checked += 1
        code, _, errors = helm("template", "test", str(CHART), "--set", values, "--kube-version", KUBERNETES[0] + ".0")
        if not code or message not in errors:
            problems.append(f"--set {values}: expected an error with {message!r}, got {errors or 'none'}")
    print("\n".join(problems))
    print(f"{checked - min(checked, len(problems))} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
