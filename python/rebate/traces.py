"""The trace language: `seq`, `branch` and `trans` as in listing 1 of the AccelFlow paper, and all other parts.

Examples:
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
    """Starts a block with ops, one after the other."""
    return Block().seq(*ops)


def trans(src: str, dst: str) -> Block:
    """Starts a block with a change of the payload's base format."""
    return Block().trans(src, dst)


def branch(
    condition: Condition | Field | str, on_true: Block | Path, on_false: Block | Path | None = None
) -> Block:
    """Starts a block with a choice by the payload's fields."""
    return Block().branch(condition, on_true, on_false)


def field(name: str) -> Field:
    """Returns a field that branches may read. Alone it is a flag, and in a comparison it is a number."""
    return Field(name)
