"""What everybody in the project talks about; it imports nothing else of the project."""
