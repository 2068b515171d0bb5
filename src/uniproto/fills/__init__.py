"""Fills of one unit of mass, cheapest first; shared by methods, transport and certificate."""
