"""Control loops of the service, and planning workers; imports `bootstrap` and below."""
