"""Tests of `rebate.client`. Run them with `python/test.sh`. They call it and pymemcache with the same arguments, on
servers of the same kind, and compare what comes back: over shared memory and TCP, from Rebate and memcached.

REBATE_BIN names the program; without it target/debug/rebate is used.
"""

import os
import pathlib
import pickle
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from typing import Any

from pymemcache import exceptions as theirs_exceptions
from pymemcache import serde as theirs_serde
from pymemcache.client.base import Client as Theirs

from rebate import client as ours_module
from rebate.client import Client

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A server that is well may be silent for seconds where the host takes its core away.
LIMIT_S = 60.0


def binary() -> str:
    path = os.environ.get("REBATE_BIN", str(ROOT / "target/debug/rebate"))
    if not os.access(path, os.X_OK):
        if "CI" in os.environ:
            raise RuntimeError(f"{path} is missing: cargo build, or set REBATE_BIN")
        raise unittest.SkipTest(f"{path} is missing: cargo build, or set REBATE_BIN")
    return path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A server that runs until `stop`."""

    def __init__(self, *command: str) -> None:
        self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        self.child.kill()
        self.child.wait()

    def wait_for(self, address: Any, family: int = socket.AF_INET) -> None:
        end = time.monotonic() + LIMIT_S
        while True:
            with socket.socket(family) as one:
                try:
                    return one.connect(address)
                except OSError:
                    if time.monotonic() > end or self.child.poll() is not None:
                        raise
            time.sleep(0.02)


class Memcached(Process):
    def __init__(self) -> None:
        path = shutil.which("memcached")
        if path is None:
            raise unittest.SkipTest("memcached is missing")
        self.port = free_port()
        super().__init__(path, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-u", "root")
        self.wait_for(("127.0.0.1", self.port))
        self.tcp = f"127.0.0.1:{self.port}"


class Rebate(Process):
    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.port = free_port()
        path = f"{self.folder}/near"
        listen = ["--listen", f"127.0.0.1:{self.port}", "--near-listen", path]
        super().__init__(binary(), "serve", *listen, "--threads", "1")
        self.wait_for(("127.0.0.1", self.port))
        self.wait_for(path, socket.AF_UNIX)
        self.tcp = f"127.0.0.1:{self.port}"
        self.near = f"near:{path}"

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.folder)


def client(server: Any, **more: Any) -> Client:
    return Client(server, connect_timeout=LIMIT_S, timeout=LIMIT_S, **more)


def theirs(server: Any, **more: Any) -> Theirs:
    return Theirs(server, connect_timeout=LIMIT_S, timeout=LIMIT_S, **more)


# A method, its arguments, and its keywords. Lists are run from front to back on an empty cache.
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("get", ("missing",), {}),
    ("get", ("missing", "default"), {}),
    ("get", (b"missing",), {"default": 5}),
    ("set", ("a", "one"), {}),
    ("get", ("a",), {}),
    ("get", (b"a",), {}),
    ("set", ("a", b"\r\n\x00END\r\n"), {"noreply": False}),
    ("get", ("a",), {}),
    ("set", ("a", ""), {"expire": 100, "flags": 7}),
    ("get", ("a", "default"), {}),
    ("set", ("number", 5), {"noreply": False}),
    ("set", ("float", 1.5), {"noreply": False}),
    ("set", ("none", None), {"noreply": False}),
    ("set", ("list", [1]), {"noreply": False}),
    ("get_many", (["number", "missing", "float", "none", "list"],), {}),
    ("get_multi", ([],), {}),
    ("get_many", ({"number": 1, "a": 2},), {}),
    ("get_many", (("number", b"float"),), {}),
    ("set", ("text", "\u00e9"), {"noreply": False}),
    ("set", ("x" * 250, "v"), {"noreply": False}),
    ("get", ("x" * 250,), {}),
    ("set", ("x" * 251, "v"), {}),
    ("get", ("x" * 251,), {}),
    ("get", ("two words",), {}),
    ("get", (" leading",), {}),
    ("get", ("tab\there",), {}),
    ("get", ("vertical\x0bhere",), {}),
    ("get", ("null\x00",), {}),
    ("get", ("caf\u00e9",), {}),
    ("get", (b"\xff\xfe",), {}),
    ("get", (5,), {}),
    ("get", (None,), {}),
    ("get_many", (["fine", "not fine"],), {}),
    ("set_many", ({"m1": "1", "m2": b"2"},), {"noreply": False}),
    ("set_multi", ({"m3": 3},), {"expire": 100}),
    ("set_many", ({},), {"noreply": False}),
    ("set_many", ({"ok": "1", "not ok": "2"},), {"noreply": False}),
    ("set_many", ({"m4": "4"},), {"expire": "soon"}),
    ("get_many", (["m1", "m2", "m3", "ok"],), {}),
    ("add", ("a", "no"), {"noreply": False}),
    ("add", ("a", "no"), {}),
    ("add", ("new", "yes"), {"noreply": False, "flags": 3}),
    ("replace", ("new", "again"), {"noreply": False}),
    ("replace", ("missing", "x"), {"noreply": False}),
    ("replace", ("missing", "x"), {"noreply": True}),
    ("append", ("new", ">"), {"noreply": False}),
    ("prepend", ("new", "<"), {"noreply": False}),
    ("append", ("missing", ">"), {"noreply": False}),
    ("prepend", ("missing", "<"), {}),
    ("get", ("new",), {}),
    ("cas", ("missing", "x", 5), {}),
    ("cas", ("new", "x", 0), {}),
    ("cas", ("new", "x", "999999999"), {}),
    ("cas", ("new", "x", b"999999999"), {"noreply": True}),
    ("cas", ("new", "x", "12a"), {}),
    ("cas", ("new", "x", -1), {}),
    ("cas", ("new", "x", 1.5), {}),
    ("cas", ("new", "x", 1 << 64), {}),
    ("incr", ("number", 3), {}),
    ("incr", ("number", 3), {"noreply": True}),
    ("decr", ("number", 100), {}),
    ("incr", ("number", (1 << 64) - 1), {}),
    ("incr", ("number", 1), {}),
    ("incr", ("missing", 1), {}),
    ("decr", ("missing", 1), {}),
    ("incr", ("new", 1), {}),
    ("incr", ("new", 1), {"noreply": True}),
    ("incr", ("number", -1), {}),
    ("incr", ("number", 1 << 64), {}),
    ("incr", ("number", "1"), {}),
    ("incr", ("number", 1.0), {}),
    ("touch", ("a", 100), {"noreply": False}),
    ("touch", ("a",), {}),
    ("touch", ("missing", 100), {"noreply": False}),
    ("touch", ("missing", 100), {}),
    ("touch", ("a", "soon"), {}),
    ("set", ("past", "x"), {"expire": -1, "noreply": False}),
    ("get", ("past",), {}),
    ("set", ("past", "x"), {"expire": 2_592_001, "noreply": False}),
    ("get", ("past",), {}),
    ("set", ("a", "x"), {"expire": "soon"}),
    ("set", ("a", "x"), {"expire": 1.5}),
    ("set", ("a", "x"), {"flags": -1, "noreply": False}),
    ("set", ("long", b"x" * 1_000_000), {"noreply": False}),
    ("set", ("longer", b"x" * (2 << 20)), {"noreply": False}),
    ("get", ("longer",), {}),
    ("delete", ("a",), {"noreply": False}),
    ("delete", ("a",), {"noreply": False}),
    ("delete", ("a",), {}),
    ("delete_many", (["m1", "missing"],), {"noreply": False}),
    ("delete_multi", ([],), {}),
    ("delete_many", (["m2", "not fine"],), {}),
    ("get_many", (["m1", "m2", "m3"],), {}),
    ("flush_all", (), {"noreply": False}),
    ("flush_all", ("soon",), {}),
    ("get", ("new",), {}),
    ("__getitem__", ("missing",), {}),
    ("__setitem__", ("item", "v"), {}),
    ("__getitem__", ("item",), {}),
    ("__delitem__", ("item",), {}),
    ("get", ("item",), {}),
    ("close", (), {}),
    ("quit", (), {}),
    ("get", ("item",), {}),
    ("disconnect_all", (), {}),
]


def outcome(target: Any, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Returns what a call gives, or the kind of its error."""
    try:
        return repr(getattr(target, method)(*arguments, **keywords))[:200]
    except Exception as error:  # noqa: BLE001
        kinds = [kind.__name__ for kind in type(error).__mro__]
        # The most specific kind that both have. A client that refuses by itself what a server would refuse gives the
        # more specific kind.
        known = ["MemcacheClientError", "MemcacheServerError"]
        return next((kind for kind in known if kind in kinds), kinds[0])


class Comparison(unittest.TestCase):
    def compare(self, rebate: Rebate | Memcached, ours_at: str, **more: Any) -> None:
        their = theirs(rebate.tcp, **more)
        their.flush_all(noreply=False)
        expected = [outcome(their, *call) for call in CALLS]
        their.flush_all(noreply=False)
        our = client(ours_at, **more)
        for call, expects in zip(CALLS, expected):
            method, arguments, keywords = call
            shown = f"{method}{arguments!r} {keywords!r}"[:120]
            with self.subTest(call=shown, server=ours_at, options=more):
                self.assertEqual(outcome(our, *call), expects)

    def test_every_call_gives_what_pymemcache_gives(self) -> None:
        for kind in (Rebate, Memcached):
            server = kind()
            self.addCleanup(server.stop)
            for at in [server.tcp] + ([server.near] if isinstance(server, Rebate) else []):
                self.compare(server, at)
                self.compare(server, at, key_prefix=b"prefix:", default_noreply=False)
                self.compare(server, at, allow_unicode_keys=True, encoding="utf8")
                self.compare(server, at, serde=theirs_serde.pickle_serde)
                self.compare(server, at, ignore_exc=True)


class OneCache(unittest.TestCase):
    server: Rebate

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Rebate()
        cls.addClassCleanup(cls.server.stop)

    def test_versions_pass_between_both(self) -> None:
        for at in (self.server.tcp, self.server.near):
            our, their = client(at), theirs(self.server.tcp)
            our.set("v", "1")
            self.assertEqual(our.gets("v"), their.gets("v"))
            self.assertEqual(our.gets_many(["v", "none"]), their.gets_many(["v", "none"]))
            version = our.gets("v")[1]
            self.assertIs(their.cas("v", "2", version), True)
            self.assertIs(our.cas("v", "3", version), False)
            self.assertIs(our.cas("v", "4", our.gats("v", 100)[1]), True)
            self.assertEqual(our.gat("v", 100), b"4")
            self.assertEqual(our.gat("none", 100, "default"), "default")
            self.assertEqual(our.gets("none", 1, 2), their.gets("none", 1, 2))

    def test_serializers_of_both_read_each_other(self) -> None:
        values = [b"bytes", "text", 5, {"a": [1, 2.5, None]}, "long" * 500]
        for serde in (theirs_serde.pickle_serde, theirs_serde.compressed_serde):
            for at in (self.server.tcp, self.server.near):
                our, their = client(at, serde=serde), theirs(self.server.tcp, serde=serde)
                for value in values:
                    our.set("s", value)
                    self.assertEqual(their.get("s"), value)
                    their.set("s", value, noreply=False)
                    self.assertEqual(our.get("s"), value)
                    self.assertEqual(our.get_many(["s"]), {"s": value})

    def test_functions_are_serializers(self) -> None:
        pair = {
            "serializer": lambda key, value: (pickle.dumps(value), 1),
            "deserializer": lambda key, value, flags: pickle.loads(value),
        }
        our = client(self.server.near, **pair)
        our.set("f", {"a": 1})
        self.assertEqual(our.get("f"), {"a": 1})
        self.assertEqual(theirs(self.server.tcp, **pair).get("f"), {"a": 1})

    def test_statistics_have_the_same_types(self) -> None:
        expected = theirs(self.server.tcp).stats()
        for at in (self.server.tcp, self.server.near):
            got = client(at).stats()
            kinds = {name: type(value) for name, value in got.items()}
            self.assertEqual(kinds, {name: type(value) for name, value in expected.items()})
            self.assertEqual(client(at).version(), theirs(self.server.tcp).version())

    def test_threads_take_turns(self) -> None:
        our = client(self.server.near)
        wrong: list[Any] = []

        def work(number: int) -> None:
            for count in range(500):
                our.set(f"thread{number}", str(count))
                got = our.get(f"thread{number}")
                if got != str(count).encode():
                    wrong.append((number, count, got))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_many_keys_and_long_values(self) -> None:
        for at in (self.server.tcp, self.server.near):
            our = client(at)
            values = {f"many{number}": bytes([number % 256]) * (number * 10) for number in range(300)}
            our.set_many(values)
            self.assertEqual(our.get_many(values), values)
            our.delete_many(values)
            self.assertEqual(our.get_many(values), {})


class Failures(unittest.TestCase):
    def test_a_client_falls_back(self) -> None:
        first, second = Rebate(), Memcached()
        self.addCleanup(second.stop)
        our = client(f"{first.near}|{second.tcp}", retry_after=0.01)
        our.set("k", "first")
        self.assertEqual(our.addresses, [first.near])
        first.stop()
        self.assertIsNone(our.get("k"))
        self.assertEqual(our.addresses, [second.tcp])

    def test_several_caches_share_the_keys(self) -> None:
        servers = [Memcached(), Memcached(), Rebate()]
        for server in servers:
            self.addCleanup(server.stop)
        last = servers[2]
        assert isinstance(last, Rebate)
        our = client([servers[0].tcp, ("127.0.0.1", servers[1].port), f"{last.near}|{last.tcp}"])
        values = {f"key{number}": b"%d" % number for number in range(300)}
        our.set_many(values)
        self.assertEqual(our.get_many(values), values)
        counts = [theirs(server.tcp).stats()[b"curr_items"] for server in servers]
        self.assertEqual(sum(counts), 300)
        self.assertTrue(all(count > 30 for count in counts), counts)
        self.assertEqual(len(our.stats()), 3)

    def test_errors_say_what_happened(self) -> None:
        with self.assertRaisesRegex(ConnectionError, "127.0.0.1:1"):
            client("127.0.0.1:1").get("k")
        self.assertEqual(client("127.0.0.1:1", ignore_exc=True).get("k", "default"), "default")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            waits = Client(("127.0.0.1", silent.getsockname()[1]), timeout=0.05)
            with self.assertRaisesRegex(TimeoutError, "50 ms"):
                waits.get("k")
            with self.assertRaises(TimeoutError):
                waits.set("k", "v")
        for wrong in ("near:", [], "a:1:0", ":1"):
            with self.assertRaises(ValueError):
                Client(wrong)
        with self.assertRaisesRegex(ValueError, "timeout is -1"):
            Client("a:1", timeout=-1)
        with self.assertRaisesRegex(ValueError, "ketama-weighted"):
            Client("a:1", distribution="rendezvous")

    def test_others_run_while_a_client_waits(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            waits = Client(("127.0.0.1", silent.getsockname()[1]), timeout=LIMIT_S)
            thread = threading.Thread(target=lambda: outcome(waits, "get", ("k",), {}), daemon=True)
            thread.start()
            # It would last a minute if the interpreter's lock were held.
            accepted, _ = silent.accept()
            self.assertTrue(accepted.recv(100).startswith(b"mg k"))
            self.assertTrue(thread.is_alive())
            accepted.sendall(b"EN\r\n")
            thread.join(LIMIT_S)
            self.assertFalse(thread.is_alive())
            accepted.close()

    def test_exceptions_have_the_names_of_pymemcache(self) -> None:
        for name in ours_module.__all__:
            if name.startswith("Memcache"):
                ours, expected = getattr(ours_module, name), getattr(theirs_exceptions, name)
                bases = [base.__name__ for base in expected.__mro__]
                self.assertEqual([base.__name__ for base in ours.__mro__], bases)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
