"""What comes from files and networks and goes there: payloads, data sets, traces, documents."""
