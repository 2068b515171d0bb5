"""Methods side by side on one problem, and costs over k: `uniproto.compare`, `uniproto.path`."""
