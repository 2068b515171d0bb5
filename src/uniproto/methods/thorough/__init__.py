"""The thorough search: small problems solved as well as they can be, where possible with proof."""
