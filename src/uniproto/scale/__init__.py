"""Selection on Ray, for data in shards. See docs/scale.md.

>>> import uniproto.scale
>>> selection = uniproto.scale.select("pool/*.parquet", 10_000, num_cpus=4)  # doctest: +SKIP
"""

from uniproto.scale.select import select

__all__ = ["select"]
