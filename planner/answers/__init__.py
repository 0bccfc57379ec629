"""Questions about a query that was planned, from what is known; imports every other room."""
