"""Selection beyond one machine, on Ray: shards stay where they are. See docs/scale.md.

>>> import uniproto.scale
>>> selection = uniproto.scale.select("pool/*.parquet", 10_000, num_cpus=4)  # doctest: +SKIP
"""

from uniproto.scale.select import select

__all__ = ["select"]
