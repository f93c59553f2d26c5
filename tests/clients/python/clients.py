"""Performs the operations of the client matrix with one of Python's memcached clients.

Usage: clients.py CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
tests/clients/README.md describes the arguments, the operations and the lines that are printed.
"""

import asyncio
import inspect
import ssl
import sys
import time

USER, PASSWORD = "matrix", "password-of-the-matrix"
# A server that is well may be silent for seconds where the host takes its core away.
LIMIT_S = 60


class Pymemcache:
    def __init__(self, options):
        from pymemcache import serde
        from pymemcache.client.base import Client

        self.client = Client(options.address, timeout=LIMIT_S, connect_timeout=LIMIT_S, no_delay=True,
                             default_noreply=False, serde=serde.pickle_serde, tls_context=options.tls)
        for name in "get delete append prepend incr decr touch version".split():
            setattr(self, name, getattr(self.client, name))

    def set(self, key, value, ttl):
        return self.client.set(key, value, ttl)

    set_number = set

    def add(self, key, value, ttl):
        return self.client.add(key, value, ttl)

    def replace(self, key, value, ttl):
        return self.client.replace(key, value, ttl)

    def gets(self, key):
        return self.client.gets(key)

    def cas(self, key, value, token):
        return self.client.cas(key, value, token)

    def mget(self, *keys):
        return self.client.get_many(keys)

    def mset(self, values):
        return not self.client.set_many(values)

    def mdelete(self, *keys):
        return self.client.delete_many(keys)

    def quiet_set(self, key, value, ttl):
        return self.client.set(key, value, ttl, noreply=True)

    def quiet_delete(self, key):
        return self.client.delete(key, noreply=True)

    def flush_all(self):
        return self.client.flush_all()

    def stats(self, *section):
        return self.client.stats(*section)

    def quit(self):
        self.client.quit()
        return True


class Pylibmc:
    def __init__(self, options):
        import pylibmc

        login = {"username": USER, "password": PASSWORD} if options.security == "sasl" else {}
        limits = {"connect_timeout": LIMIT_S * 1000, "_poll_timeout": LIMIT_S * 1000}
        self.binary = options.protocol == "binary"
        checks = {} if self.binary else {"verify_keys": True}
        self.client = pylibmc.Client([options.text], binary=self.binary,
                                     behaviors={"cas": True, **checks, **limits}, **login)
        for name in "get gets cas add replace append prepend decr delete flush_all".split():
            setattr(self, name, getattr(self.client, name))
        if not self.binary:
            # Its libmemcached waits for ever for the answer to a touch packet, from memcached too.
            self.touch = self.client.touch

    def incr(self, key, by):
        if self.binary and key in (b"word", b"large_counter"):
            # Its libmemcached loses the connection when a packet says that a value is no number.
            raise NotImplementedError
        return self.client.incr(key, by)

    def set(self, key, value, ttl):
        # With its compression, which is how services use it.
        return self.client.set(key, value, ttl, min_compress_len=1000)

    set_number = set

    def mget(self, *keys):
        return self.client.get_multi(keys)

    def mset(self, values):
        return not self.client.set_multi(values)

    def mdelete(self, *keys):
        return self.client.delete_multi(keys)

    def stats(self, *section):
        return self.client.get_stats(*section)[0][1]

    def quit(self):
        self.client.disconnect_all()
        return True


class PythonMemcached:
    def __init__(self, options):
        import memcache

        self.client = memcache.Client([options.text], socket_timeout=LIMIT_S, dead_retry=0,
                                      server_max_value_length=1 << 30, cache_cas=True)
        for name in "get incr decr".split():
            setattr(self, name, getattr(self.client, name))
        for name in "set add replace append prepend delete touch".split():
            setattr(self, name, self._yes_or_no(name))
        self.set_number = self.set

    def _yes_or_no(self, name):
        return lambda *arguments: bool(getattr(self.client, name)(*arguments))

    def gets(self, key):
        return self.client.gets(key), None

    def cas(self, key, value, _token):
        return bool(self.client.cas(key, value))

    def mget(self, *keys):
        return self.client.get_multi(keys)

    def mset(self, values):
        return not self.client.set_multi(values)

    def mdelete(self, *keys):
        return bool(self.client.delete_multi(keys))

    def quiet_set(self, key, value, ttl):
        return bool(self.client.set(key, value, ttl, noreply=True))

    def quiet_delete(self, key):
        return bool(self.client.delete(key, noreply=True))

    def flush_all(self):
        return self.client.flush_all() is None

    def stats(self, *section):
        return self.client.get_stats(*section)[0][1]

    def quit(self):
        self.client.disconnect_all()
        return True


class Bmemcached:
    def __init__(self, options):
        import bmemcached

        login = {"username": USER, "password": PASSWORD} if options.security == "sasl" else {}
        self.client = bmemcached.Client((options.text,), socket_timeout=LIMIT_S,
                                        tls_context=options.tls, **login)
        for name in "get gets delete incr decr flush_all".split():
            setattr(self, name, getattr(self.client, name))

    def set(self, key, value, ttl):
        return self.client.set(key, value, ttl)

    set_number = set

    def add(self, key, value, ttl):
        return self.client.add(key, value, ttl)

    def replace(self, key, value, ttl):
        return self.client.replace(key, value, ttl)

    def cas(self, key, value, token):
        return self.client.cas(key, value, token)

    def incr_initial(self, key, by, initial):
        return self.client.incr(key, by, default=initial, time=0)

    def decr_initial(self, key, by, initial):
        return self.client.decr(key, by, default=initial, time=0)

    def mget(self, *keys):
        return self.client.get_multi(keys)

    def mset(self, values):
        return not self.client.set_multi(values)

    def mdelete(self, *keys):
        return self.client.delete_multi(keys)

    def stats(self, *section):
        return next(iter(self.client.stats(*section).values()))

    def quit(self):
        self.client.disconnect_all()
        return True


class Aiomcache:
    def __init__(self, options):
        import aiomcache

        host, port = options.address
        # As many bytes as the largest answer: asyncio's reader refuses longer ones.
        arguments = {"limit": 4 << 20} | ({"ssl": options.tls} if options.tls else {})
        self.client = aiomcache.Client(host, port, pool_size=1, conn_args=arguments)
        for name in "get gets append prepend incr decr delete touch version set add replace cas".split():
            setattr(self, name, getattr(self.client, name))

    async def mget(self, *keys):
        return dict(zip(keys, await self.client.multi_get(*keys)))

    async def flush_all(self):
        return await self.client.flush_all() is None

    async def stats(self, *section):
        return await self.client.stats(*(name.encode() for name in section))

    async def quit(self):
        return await self.client.close() is None


class Emcache:
    def __init__(self, options):
        self.options = options

    async def start(self):
        import emcache

        options = self.options
        self.host = emcache.MemcachedHostAddress(*options.address)
        tls = {"ssl": True, "ssl_verify": True, "ssl_extra_ca": options.ca} if options.tls else {}
        self.client = await emcache.create_client(
            [self.host], timeout=LIMIT_S, min_connections=1, max_connections=1,
            purge_unused_connections_after=None, connection_timeout=LIMIT_S, **tls)
        self.not_stored = emcache.NotStoredStorageCommandError
        self.not_found = emcache.NotFoundCommandError

    async def _stored(self, stored):
        try:
            await stored
            return True
        except (self.not_stored, self.not_found):
            return False

    def set(self, key, value, ttl):
        return self._stored(self.client.set(key, value, exptime=ttl))

    def add(self, key, value, ttl):
        return self._stored(self.client.add(key, value, exptime=ttl))

    def replace(self, key, value, ttl):
        return self._stored(self.client.replace(key, value, exptime=ttl))

    def append(self, key, value):
        return self._stored(self.client.append(key, value))

    def prepend(self, key, value):
        return self._stored(self.client.prepend(key, value))

    def delete(self, key):
        return self._stored(self.client.delete(key))

    def touch(self, key, ttl):
        return self._stored(self.client.touch(key, ttl))

    async def get(self, key):
        item = await self.client.get(key)
        return item and item.value

    async def gets(self, key):
        item = await self.client.gets(key)
        return (item.value, item.cas) if item else (None, None)

    def cas(self, key, value, token):
        return self._stored(self.client.cas(key, value, token))

    async def gat(self, key, ttl):
        item = await self.client.gat(ttl, key)
        return item and item.value

    async def _count(self, counted):
        try:
            return await counted
        except self.not_found:
            return None

    def incr(self, key, by):
        return self._count(self.client.increment(key, by))

    def decr(self, key, by):
        return self._count(self.client.decrement(key, by))

    async def mget(self, *keys):
        return {key: item.value for key, item in (await self.client.get_many(keys)).items()}

    def quiet_set(self, key, value, ttl):
        return self._stored(self.client.set(key, value, exptime=ttl, noreply=True))

    def quiet_delete(self, key):
        return self._stored(self.client.delete(key, noreply=True))

    async def flush_all(self):
        return await self.client.flush_all(self.host) is None

    async def version(self):
        return await self.client.version(self.host)

    def stats(self, *section):
        return self.client.stats(self.host, *section)

    async def quit(self):
        return await self.client.close() is None


CLIENTS = {"pymemcache": Pymemcache, "pylibmc": Pylibmc, "python-memcached": PythonMemcached,
           "bmemcached": Bmemcached, "aiomcache": Aiomcache, "emcache": Emcache}


class Options:
    def __init__(self, protocol, security, ca, text):
        self.protocol, self.security, self.ca, self.text = protocol, security, ca, text
        host, port = text.rsplit(":", 1)
        self.address = host, int(port)
        self.tls = ssl.create_default_context(cafile=ca) if security == "tls" else None


def as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def shown(result, arguments, operation):
    if operation == "stats":
        names = {as_bytes(name).decode() for name in result}
        missing = [name for name in arguments[1:] if name not in names]
        return "lacks " + " ".join(missing) if missing else "yes"
    if isinstance(result, dict):
        found = {as_bytes(key): value for key, value in result.items() if value is not None}
        keys = [key for key in dict.fromkeys(arguments) if key in found]
        return "values" + "".join(f" {key.hex()}={as_bytes(found[key]).hex()}" for key in keys)
    if isinstance(result, bool) or result is None:
        return {True: "yes", False: "no", None: "miss"}[result]
    return f"number {result}" if isinstance(result, int) else f"value {as_bytes(result).hex()}"


async def call(client, operation, *arguments):
    if not hasattr(client, operation):
        raise NotImplementedError
    result = getattr(client, operation)(*arguments)
    return await result if inspect.isawaitable(result) else result


async def perform(client, operation, arguments, with_tls):
    if operation == "cas":
        key, value, meanwhile = arguments
        found, token = await call(client, "gets", key)
        if found is None:
            return None
        if meanwhile != "nobody":
            change = [key] if meanwhile == "delete" else [key, b"other", 0]
            await call(client, meanwhile, *change)
        return await call(client, "cas", key, value, token)
    if operation == "stats":
        return await call(client, "stats", *(name for name in arguments[:1] if name != "-"))
    if operation == "mset":
        values = dict(zip(arguments[::2], arguments[1::2]))
        # pymemcache's set_many of 300 keys over TLS waits in vain for answers of memcached 1.6.18.
        if hasattr(client, "mset") and not with_tls:
            return await call(client, "mset", values)
        return all([await call(client, "set", key, value, 0) for key, value in values.items()])
    return await call(client, operation, *arguments)


# How to read the arguments: bytes in hex, integers, words. The last letter holds for all further arguments.
KINDS = {"touch": "bi", "gat": "bi", "incr": "bi", "decr": "bi", "set_number": "bii", "cas": "bbw",
         "incr_initial": "bii", "decr_initial": "bii", "stats": "w",
         **dict.fromkeys(["set", "add", "replace", "quiet_set"], "bbi")}
READ = {"b": bytes.fromhex, "i": int, "w": str}


async def main(name, protocol, security, ca, operations, *addresses):
    clients = [CLIENTS[name](Options(protocol, security, ca, address)) for address in addresses]
    for client in clients:
        if hasattr(client, "start"):
            await client.start()
    with open(operations, encoding="ascii") as lines:
        for number, line in enumerate(lines):
            operation, *texts = line.rstrip("\n").split("\t")
            if operation == "sleep":
                time.sleep(int(texts[0]) / 1000)
                continue
            kinds = KINDS.get(operation, "b")
            kinds += kinds[-1] * len(texts)
            arguments = [READ[kind](text) for kind, text in zip(kinds, texts)]
            for server, client in enumerate(clients):
                try:
                    found = await perform(client, operation, arguments, security == "tls")
                    result = shown(found, arguments, operation)
                except NotImplementedError:
                    result = "unsupported"
                except Exception as error:  # Whatever a client raises is its answer.
                    result = f"error {type(error).__name__}: {error}".replace("\n", " ")
                print(number, server, result, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
