"""The shared vocabulary; it imports nothing else of the project."""
