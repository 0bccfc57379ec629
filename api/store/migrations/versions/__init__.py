"""One file per change of the tables, never edited once released."""
