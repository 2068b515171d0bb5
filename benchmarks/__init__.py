"""Our methods and the peers', in one run: `python -m benchmarks`. See docs/benchmarks.md."""
