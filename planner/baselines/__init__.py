"""Other strategies, peers of the product's own behind the same Protocol."""
