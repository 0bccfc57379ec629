"""Which configuration is measured next: the protocol and who keeps it; imports `models`."""
