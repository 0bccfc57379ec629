"""The service over HTTP: application, gate, routes, errors; imports `control` and all below."""
