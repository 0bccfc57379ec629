"""The operator: `PipelineQuery` objects of a Kubernetes cluster, kept as queries of a service.

`definition` is the object's schema, `following` decides, `controller` listens to the cluster
(the only home of kopf), `leadership` sees to it that one of several controllers acts.
"""
