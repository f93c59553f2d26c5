"""The trace language: `seq`, `branch` and `trans` as the AccelFlow paper's listing 1 has them, and what else a trace does.

>>> path = (
...     seq("tcp", "decrypt", "rpc", "deserialize")
...     .branch("compressed", trans("json", "string").seq("decompress"))
...     .seq("load-balance")
...     .notify()
... )
>>> Catalog([Trace("func_req", "encrypted(message(protobuf))", path)], flags=["compressed"])
Catalog(1 traces, 0 services)
"""

from __future__ import annotations

from rebate._rebate import Block, Catalog, Condition, Field, Path, Trace, format_text

__all__ = [
    "Block",
    "Catalog",
    "Condition",
    "Field",
    "Path",
    "Trace",
    "branch",
    "field",
    "format_text",
    "seq",
    "trans",
]


def seq(*ops: str) -> Block:
    """Ops one after the other, to begin with."""
    return Block().seq(*ops)


def trans(src: str, dst: str) -> Block:
    """A change of the payload's format, to begin with."""
    return Block().trans(src, dst)


def branch(
    condition: Condition | Field | str, on_true: Block | Path, on_false: Block | Path | None = None
) -> Block:
    """A choice by the payload's fields, to begin with."""
    return Block().branch(condition, on_true, on_false)


def field(name: str) -> Field:
    """A field that branches may read: a flag as it stands, a number where it is compared."""
    return Field(name)
