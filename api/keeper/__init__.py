"""The keeper: the process that dispatcher and workers belong to, and the service's way to it.

It listens where clients do, answers requests to deployments itself and hands all others to the
service. A service that is killed is missed by nobody but them, and takes the keeper over when it
is started again.
"""
