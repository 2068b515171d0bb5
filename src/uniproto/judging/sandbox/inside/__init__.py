"""What runs on the other side of the fence.

These modules are started by a bare `python -I -S` for every program, so they import little (no
`typing`, no `dataclasses`: each would cost milliseconds a program) and nothing of this package.
"""
