"""Lower bounds on the cost of any k prototypes: `bound.proven_bound` and `ascent.certify`."""
