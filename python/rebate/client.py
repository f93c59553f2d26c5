"""A client of the cache, with pymemcache's methods and names.

Examples:
  >>> from rebate.client import Client
  >>> cache = Client("near:/run/rebate/near|127.0.0.1:11211")
  >>> cache.set("greeting", "hello")
  True
  >>> cache.get("greeting")
  b'hello'

On the cache's host it exchanges requests through shared memory, without the kernel. While there is no near socket, it
uses the next address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rebate._rebate import (
    Connection,
    MemcacheClientError,
    MemcacheError,
    MemcacheIllegalInputError,
    MemcacheServerError,
    MemcacheUnexpectedCloseError,
    MemcacheUnknownCommandError,
)

__all__ = [
    "Client",
    "MemcacheClientError",
    "MemcacheError",
    "MemcacheIllegalInputError",
    "MemcacheServerError",
    "MemcacheUnexpectedCloseError",
    "MemcacheUnknownCommandError",
    "Serde",
]

Key = bytes | str
Default = TypeVar("Default")
Server = str | tuple[str, int]


class Serde(Protocol):
    """Converts values. The objects of `pymemcache.serde` are such."""

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]:
        """Returns what is stored for a value, and its flags."""

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        """Returns the value for what is stored."""


class _Functions:
    """A serializer of two functions."""

    def __init__(
        self,
        serializer: Callable[[Any, Any], tuple[Any, int]] | None,
        deserializer: Callable[[Any, bytes, int], Any] | None,
    ) -> None:
        self.serialize = serializer or (lambda key, value: (value, 0))
        self.deserialize = deserializer or (lambda key, value, flags: value)


class Client:
    """A client of one cache or of several.

    Args:
      server: `near:PATH`, `HOST:PORT`, `(HOST, PORT)`, `unix:PATH` or `/PATH`. Bars separate addresses of one cache, the
        preferred one first. A list is several caches, to which keys are assigned as libmemcached does; a
        `HOST:PORT:WEIGHT` says a cache's share.
      serde: converts values, see `Serde`. Without it, what is not bytes is stored as its text and returned as bytes.
      serializer: `serde.serialize` as a function.
      deserializer: `serde.deserialize` as a function.
      connect_timeout: seconds for connecting to one address. None is no limit.
      timeout: seconds for one call. None is no limit.
      no_delay: accepted; small requests are always sent at once.
      ignore_exc: whether gets that fail count as misses.
      key_prefix: what is put in front of every key.
      default_noreply: whether calls that change something return True whatever the cache answers. They wait for its
        answer in any case, so that the next call finds the change.
      allow_unicode_keys: whether keys may have characters beyond ASCII, which are sent as UTF-8.
      encoding: how texts of values are encoded.
      distribution: `ketama`, `ketama-weighted` or `modula`, as libmemcached names them.
      retry_after: seconds until a client that uses another address tries the preferred one again.

    A client connects when it is first used. Threads may share one; they take turns.
    """

    def __init__(
        self,
        server: Server | Sequence[Server],
        serde: Serde | None = None,
        serializer: Callable[[Any, Any], tuple[Any, int]] | None = None,
        deserializer: Callable[[Any, bytes, int], Any] | None = None,
        connect_timeout: float | None = None,
        timeout: float | None = None,
        no_delay: bool = False,
        ignore_exc: bool = False,
        *,
        key_prefix: bytes | str = b"",
        default_noreply: bool = True,
        allow_unicode_keys: bool = False,
        encoding: str = "ascii",
        distribution: str = "ketama",
        retry_after: float = 1.0,
    ) -> None:
        if isinstance(key_prefix, str):
            key_prefix = key_prefix.encode("ascii")
        if not isinstance(key_prefix, bytes):
            raise TypeError("key_prefix should be bytes.")
        self.default_noreply = default_noreply
        self.ignore_exc = ignore_exc
        self.encoding = encoding
        self._serde: Serde = serde or _Functions(serializer, deserializer)
        # Then a get needs no flags.
        self._returns_bytes = serde is None and deserializer is None
        self._connection = Connection(
            _servers(server),
            distribution=distribution,
            connect_timeout=connect_timeout,
            timeout=timeout,
            retry_after=retry_after,
            prefix=key_prefix,
            allows_unicode=allow_unicode_keys,
        )
        self._get = self._connection.get
        self._get_item = self._connection.get_item

    @property
    def addresses(self) -> list[str | None]:
        """The address in use of each server, or None while there is no connection to it."""
        return self._connection.addresses

    def get(self, key: Key, default: Any = None) -> Any:
        """Returns the value of a key."""
        try:
            if self._returns_bytes:
                value = self._get(key)
                return default if value is None else value
            item = self._get_item(key)
            if item is None:
                return default
            return self._serde.deserialize(key, item[0], item[1])
        except Exception as error:
            return self._missed(error, default)

    def gets(self, key: Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """Returns the value of a key and its version, for `cas`."""
        try:
            item = self._get_item(key)
            return (default, cas_default) if item is None else self._versioned(key, item)
        except Exception as error:
            return self._missed(error, (default, cas_default))

    def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        """Returns the value of a key and sets its expiry."""
        try:
            item = self._connection.get_and_touch(key, _whole(expire, "expire"))
            return default if item is None else self._serde.deserialize(key, item[0], item[1])
        except Exception as error:
            return self._missed(error, default)

    def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: Any = None
    ) -> tuple[Any, Any]:
        """Returns the value of a key and its version, and sets its expiry."""
        try:
            item = self._connection.get_and_touch(key, _whole(expire, "expire"))
            return (default, cas_default) if item is None else self._versioned(key, item)
        except Exception as error:
            return self._missed(error, (default, cas_default))

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """Returns the values of those keys that are there."""
        return self._many(keys, lambda key, item: self._serde.deserialize(key, item[0], item[1]))

    get_multi = get_many

    def gets_many(self, keys: Iterable[Key]) -> dict[Key, tuple[Any, Any]]:
        """Returns the values of those keys that are there, with their versions."""
        return self._many(keys, self._versioned)

    def set(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool | None:
        """Stores a value."""
        return self._store("set", key, value, expire, self._quiet(noreply), flags)

    def set_many(
        self,
        values: Mapping[Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Key]:
        """Stores several values. Returns the keys that were not stored: none, because a refusal is raised."""
        expire = _whole(expire, "expire")
        entries = [(key, *self._stored(key, value, flags)) for key, value in values.items()]

        def store() -> bool:
            self._connection.set_many(entries, expire)
            return True

        self._changed(self._quiet(noreply), store)
        return []

    set_multi = set_many

    def add(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool | None:
        """Stores a value if the key is not there. Returns whether it was stored."""
        return self._store("add", key, value, expire, self._quiet(noreply), flags)

    def replace(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool | None:
        """Stores a value if the key is there. Returns whether it was stored."""
        return self._store("replace", key, value, expire, self._quiet(noreply), flags)

    def append(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool | None:
        """Appends to a value. Returns whether the key was there."""
        return self._store("append", key, value, expire, self._quiet(noreply), flags)

    def prepend(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool | None:
        """Prepends to a value. Returns whether the key was there."""
        return self._store("prepend", key, value, expire, self._quiet(noreply), flags)

    def cas(
        self,
        key: Key,
        value: Any,
        cas: int | str | bytes,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """Stores a value if the key has the version `cas`. Returns False if it has another, None if it is not there."""
        return self._store("cas", key, value, expire, noreply, flags, _version(cas))

    def delete(self, key: Key, noreply: bool | None = None) -> bool:
        """Deletes a key. Returns whether it was there."""
        return self._changed(self._quiet(noreply), lambda: self._connection.delete(key))

    def delete_many(self, keys: Iterable[Key], noreply: bool | None = None) -> bool:
        """Deletes several keys. Returns True."""
        keys = list(keys or ())

        def delete() -> bool:
            self._connection.delete_many(keys)
            return True

        return self._changed(self._quiet(noreply), delete)

    delete_multi = delete_many

    def incr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Adds to a number. Returns the sum, or None if the key is not there."""
        return self._count(self._connection.increment, key, value, noreply)

    def decr(self, key: Key, value: int, noreply: bool | None = False) -> int | None:
        """Subtracts from a number, down to 0. Returns the difference, or None if the key is not there."""
        return self._count(self._connection.decrement, key, value, noreply)

    def touch(self, key: Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Sets the expiry of a key. Returns whether it was there."""
        expire = _whole(expire, "expire")
        return self._changed(self._quiet(noreply), lambda: self._connection.touch(key, expire))

    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Removes all items of all servers. Returns True."""
        delay = _whole(delay, "delay")

        def flush() -> bool:
            self._connection.flush(delay)
            return True

        return self._changed(self._quiet(noreply), flush)

    def stats(self, *args: str) -> dict[Any, Any]:
        """Returns a page of statistics. With several servers it is one dictionary per server, by the server's text."""
        try:
            pages = self._connection.stats(" ".join(args))
        except Exception as error:
            return self._missed(error, {})
        typed = [{name.encode(): _statistic(name, text) for name, text in page} for page in pages]
        if len(typed) == 1:
            return typed[0]
        return dict(zip(self._connection.servers, typed))

    def version(self) -> bytes:
        """Returns the version of the first server."""
        return self._connection.versions()[0].encode()

    def close(self) -> None:
        """Closes the connections. The next call opens new ones."""
        self._connection.close()

    quit = disconnect_all = close

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Any) -> None:
        self.set(key, value, noreply=True)

    def __delitem__(self, key: Key) -> None:
        self.delete(key, noreply=True)

    def _quiet(self, noreply: bool | None) -> bool:
        return self.default_noreply if noreply is None else noreply

    def _missed(self, error: Exception, default: Default) -> Default:
        # A key that is wrong is an error of the caller and not of the cache.
        if not self.ignore_exc or isinstance(error, (MemcacheIllegalInputError, TypeError)):
            raise error
        return default

    def _versioned(self, key: Key, item: tuple[bytes, int, int]) -> tuple[Any, bytes]:
        value, flags, cas = item
        return self._serde.deserialize(key, value, flags), b"%d" % cas

    def _many(
        self, keys: Iterable[Key], convert: Callable[[Key, tuple[bytes, int, int]], Any]
    ) -> dict[Key, Any]:
        keys = list(keys)
        try:
            items = self._connection.get_many(keys)
            found = zip(keys, items)
            return {key: convert(key, item) for key, item in found if item is not None}
        except Exception as error:
            return self._missed(error, {})

    def _store(
        self,
        verb: str,
        key: Key,
        value: Any,
        expire: int,
        noreply: bool,
        flags: int | None,
        cas: int = 0,
    ) -> bool | None:
        expire = _whole(expire, "expire")
        data, data_flags = self._stored(key, value, flags)
        try:
            stored = self._connection.store(verb, key, data, expire, data_flags, cas)
        except MemcacheError as error:
            if not noreply or isinstance(error, _RAISED_ALWAYS):
                raise
            return True
        return True if noreply else stored

    def _stored(self, key: Key, value: Any, flags: int | None) -> tuple[bytes, int]:
        data, data_flags = self._serde.serialize(key, value)
        if not isinstance(data, bytes):
            try:
                data = str(data).encode(self.encoding)
            except UnicodeEncodeError as error:
                raise MemcacheIllegalInputError(f"Data values must be binary-safe: {error}")
        return data, data_flags if flags is None else flags

    def _changed(self, noreply: bool, change: Callable[[], bool]) -> bool:
        try:
            changed = change()
        except MemcacheError as error:
            if not noreply or isinstance(error, _RAISED_ALWAYS):
                raise
            return True
        return noreply or changed

    def _count(
        self,
        count: Callable[[Key, int], int | None],
        key: Key,
        value: int,
        noreply: bool | None,
    ) -> int | None:
        value = _whole(value, "value")
        if not 0 <= value < 1 << 64:
            raise MemcacheClientError(f"invalid numeric delta argument: {value}")
        try:
            number = count(key, value)
        except MemcacheError as error:
            if not noreply or isinstance(error, _RAISED_ALWAYS):
                raise
            return None
        return None if noreply else number


# What a cache refuses is not seen without a reply. What never reached it, or may not have, is.
_RAISED_ALWAYS = (MemcacheIllegalInputError, MemcacheUnexpectedCloseError)


def _servers(server: Server | Sequence[Server]) -> list[str]:
    servers = [server] if isinstance(server, (str, tuple)) else server
    return [_text(one) for one in servers]


def _text(server: Server) -> str:
    if isinstance(server, tuple):
        host, port = server
        return f"[{host}]:{port}" if ":" in host and host[0] != "[" else f"{host}:{port}"
    if not isinstance(server, str):
        raise ValueError(f"{server!r} is no server; give a text or a (host, port)")
    return "|".join(_address(part) for part in server.split("|"))


def _address(text: str) -> str:
    if text.startswith("/"):
        return f"unix:{text}"
    is_path = text.startswith(("near:", "unix:"))
    has_port = ":" in text.rpartition("]")[2]
    return text if is_path or has_port else f"{text}:11211"


def _whole(value: int, name: str) -> int:
    if not isinstance(value, int):
        raise MemcacheIllegalInputError(f"{name} must be integer, got bad value: {value!r}")
    return value


def _version(cas: int | str | bytes) -> int:
    text = str(cas) if isinstance(cas, (int, str)) else cas
    if not isinstance(text, (bytes, str)):
        raise MemcacheIllegalInputError(f"cas must be integer, string, or bytes, got: {cas!r}")
    if not text.isdigit() or not (isinstance(text, bytes) or text.isascii()):
        raise MemcacheIllegalInputError(f"cas must only contain values in 0-9, got: {cas!r}")
    version = int(text)
    if version >= 1 << 64:
        raise MemcacheClientError(f"cas is {version}; versions have at most 64 bits")
    return version


_YES_OR_NO = {"auth_enabled_sasl"}
_SWITCHES = {
    "hash_is_expanding",
    "slab_reassign_running",
    "detail_enabled",
    "cas_enabled",
    "maxconns_fast",
    "slab_reassign",
    "slab_automove",
}
_SECONDS = {"rusage_user", "rusage_system"}
_TEXTS = {"version", "inter", "stat_key_prefix"}


def _statistic(name: str, text: str) -> Any:
    # As pymemcache does, which splits the line at its spaces.
    text = (text.split() or [""])[0]
    if name in _TEXTS:
        return text.encode()
    try:
        if name in _YES_OR_NO:
            return text == "yes"
        if name in _SWITCHES:
            return int(text) != 0
        if name in _SECONDS:
            return float(text.replace(":", "."))
        if name == "growth_factor":
            return float(text)
        return int(text, 8) if name == "umask" else int(text)
    except ValueError:
        return text.encode()
