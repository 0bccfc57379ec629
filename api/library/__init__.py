"""What programs import: planning, its result, and what follows from it. Above all other rooms."""
