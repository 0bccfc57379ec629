"""How dispatch policies compare, simulated and live; imports `scheduler` and `deploy`."""
