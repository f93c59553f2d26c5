"""Drives a server with the Python clients that services use; ends with status 1 at the first difference.

Usage: clients.py HOST:PORT            every client against one server
       clients.py ring FRONT A,B,...   what is set through FRONT is found by libmemcached's own ring
"""

import sys
import time

import bmemcached
import pylibmc
import pymemcache
from pymemcache.client.base import Client as Pymemcache

HTML = b"<li class='item'><a href='/page'>page</a></li>\n" * 2000
VALUES = [b"", b"a", b"0", bytes(range(256)) * 16, HTML, b"\xfbRb" + HTML[:500], b"\r\nEND\r\n"]


# A server that is well may be silent for seconds where the host takes its core away.
PATIENCE_S = 30
PATIENCE_MS = {"connect_timeout": PATIENCE_S * 1000, "_poll_timeout": PATIENCE_S * 1000}


def equal(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {repr(found)[:200]} instead of {repr(wanted)[:200]}")


def pymemcache_story(host, port):
    client = Pymemcache((host, port), timeout=PATIENCE_S, connect_timeout=PATIENCE_S, no_delay=True)
    for number, value in enumerate(VALUES):
        key = f"pymemcache_{number}"
        equal("set", client.set(key, value, noreply=False), True)
        equal("get", client.get(key), value)
        found, cas = client.gets(key)
        equal("gets", found, value)
        equal("cas", client.cas(key, value + b"!", cas, noreply=False), True)
        equal("stale cas", client.cas(key, b"", cas, noreply=False), False)
        equal("append", client.append(key, b"after", noreply=False), True)
        equal("prepend", client.prepend(key, b"before", noreply=False), True)
        equal("get after", client.get(key), b"before" + value + b"!after")
        equal("add", client.add(key, b"x", noreply=False), False)
        equal("touch", client.touch(key, 100, noreply=False), True)
        equal("delete", client.delete(key, noreply=False), True)
        equal("miss", client.get(key), None)
    client.set("pymemcache_listed", b"x", noreply=False)
    client.stats("cachedump", "1", "1")
    # memcached leaves items out of its list while it moves them.
    end, listed = time.monotonic() + PATIENCE_S, b""
    while b"key=pymemcache_listed " not in listed and time.monotonic() < end:
        listed = client.raw_command("lru_crawler metadump all", end_tokens="END\r\n")
    equal("metadump", b"key=pymemcache_listed " in listed, True)
    many = {f"pymemcache_many_{number}": HTML[:number * 97] for number in range(300)}
    equal("set_many", client.set_many(many, noreply=False), [])
    equal("get_many", client.get_many(list(many) + ["absent"]), many)
    client.set("pymemcache_count", b"41", noreply=False)
    equal("incr", client.incr("pymemcache_count", 1, noreply=False), 42)
    equal("decr", client.decr("pymemcache_count", 100, noreply=False), 0)
    try:
        client.get("k" * 300)
        sys.exit("a key of 300 bytes was accepted")
    except pymemcache.exceptions.MemcacheIllegalInputError:
        pass
    try:
        client.set("pymemcache_large", b"x" * (2 << 20), noreply=False)
        sys.exit("a value of 2 MiB was stored")
    except pymemcache.exceptions.MemcacheServerError:
        client.close()
    equal("after an error", client.get("pymemcache_count"), b"0 ")
    equal("version", bool(client.version()), True)
    client.quit()


def pylibmc_story(host, port, binary):
    behaviors = {"cas": True, **PATIENCE_MS}
    client = pylibmc.Client([f"{host}:{port}"], binary=binary, behaviors=behaviors)
    for number, value in enumerate(VALUES):
        for level in [0, 1, 6]:
            key = f"pylibmc_{number}_{level}"
            equal("set", client.set(key, value, min_compress_len=1000 if level else 0,
                                    compress_level=level or -1), True)
            equal("get", client.get(key), value)
            found, cas = client.gets(key)
            equal("gets", found, value)
            equal("cas", client.cas(key, b"new", cas), True)
            equal("get after", client.get(key), b"new")
    objects = {"pylibmc_int": 7, "pylibmc_text": "caf\u00e9" * 900, "pylibmc_list": [1, {"a": None}]}
    equal("set_multi", client.set_multi(objects), [])
    equal("get_multi", client.get_multi(list(objects) + ["absent"]), objects)
    equal("incr", client.incr("pylibmc_int", 5), 12)
    equal("add", client.add("pylibmc_int", 1), False)
    equal("replace", client.replace("pylibmc_int", 1), True)
    equal("append", client.set("pylibmc_tail", b"a") and client.append("pylibmc_tail", b"b"), True)
    equal("delete_multi", client.delete_multi(list(objects)), True)
    equal("get_multi of nothing", client.get_multi(list(objects)), {})


def bmemcached_story(host, port):
    client = bmemcached.Client((f"{host}:{port}",), socket_timeout=PATIENCE_S)
    for number, value in enumerate(VALUES):
        key = f"bmemcached_{number}"
        equal("set", client.set(key, value), True)
        found, cas = client.gets(key)
        equal("gets", found, value)
        equal("cas", client.cas(key, value + b"!", cas), True)
        equal("stale cas", client.cas(key, b"", cas), False)
        equal("add", client.add(key, b"x"), False)
        equal("get after", client.get(key), value + b"!")
        equal("delete", client.delete(key), True)
        equal("replace", client.replace(key, b"x"), False)
        equal("miss", client.get(key), None)
    many = {f"bmemcached_many_{number}": HTML[:number * 97] for number in range(300)}
    equal("set_multi", client.set_multi(many), [])
    equal("get_multi", client.get_multi(list(many) + ["absent"]), many)
    equal("delete_multi", client.delete_multi(list(many)), True)
    equal("get_multi of nothing", client.get_multi(list(many)), {})
    client.delete("bmemcached_count")
    equal("incr of nothing", client.incr("bmemcached_count", 5, default=7, time=0), 7)
    equal("incr", client.incr("bmemcached_count", 5), 12)
    equal("decr", client.decr("bmemcached_count", 100), 0)
    try:
        client.set("bmemcached_large", b"x" * (2 << 20), compress_level=0)
        sys.exit("a value of 2 MiB was stored")
    except bmemcached.exceptions.MemcachedException as error:
        equal("status", error.code, 3)
    equal("after an error", client.get("bmemcached_count"), "0 ")
    client.disconnect_all()


def ring_story(front, servers):
    host, port = front.rsplit(":", 1)
    ours = Pymemcache((host, int(port)), timeout=PATIENCE_S)
    theirs = pylibmc.Client(servers, binary=False, behaviors={"ketama": True, **PATIENCE_MS})
    for number in range(500):
        key = f"ring_{number}_{number * 7919}"
        equal("set", ours.set(key, key.encode(), noreply=False), True)
        equal(f"{key} by libmemcached", theirs.get(key), key.encode())


if __name__ == "__main__":
    if sys.argv[1] == "ring":
        ring_story(sys.argv[2], sys.argv[3].split(","))
    else:
        HOST, PORT = sys.argv[1].rsplit(":", 1)
        pymemcache_story(HOST, int(PORT))
        for BINARY in [False, True]:
            pylibmc_story(HOST, int(PORT), BINARY)
        bmemcached_story(HOST, int(PORT))
