"""Objects with the `Backend` protocol that need nothing but the standard library, and how strings name backends."""
