"""A schedule that lives on as queries come and go; imports `policies` and all below."""
