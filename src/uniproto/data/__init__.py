"""Reading what users have: arrays, tables, files."""
