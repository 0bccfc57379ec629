"""What runs instances and passes requests to them; imports `workers`."""
