"""How strategies find pools, on published tables and drawn problems; imports `scheduler`."""
