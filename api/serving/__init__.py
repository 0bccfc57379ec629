"""The serving process, to which dispatcher and workers belong, and the service's way to it.

It listens where clients do, answers requests to deployments itself and hands all others to the
service. When the service is killed, only those others fail; the next service takes it over.
"""
