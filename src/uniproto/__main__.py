"""`python -m uniproto` is the command line."""

from uniproto.cli import main

raise SystemExit(main())
