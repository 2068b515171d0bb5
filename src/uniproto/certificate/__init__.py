"""Lower bounds on the cost of any k prototypes."""
