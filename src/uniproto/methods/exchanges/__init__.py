"""Exchanges of single prototypes, each tried on an exact plan that is kept up to date."""
