"""Partial optimal-transport plans: exact, exact and growing row by row, and entropic."""
