"""The operator: `PipelineQuery` objects of a Kubernetes cluster, kept as queries of a service.

`definition` is the object's schema, `following` decides, `controller` watches the cluster and
looks at what changed, `leadership` sees to it that one of several controllers acts (`running`).
"""
