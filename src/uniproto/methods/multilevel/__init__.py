"""Few prototypes of many rows: centres on a sample first, rows of the pool last."""
