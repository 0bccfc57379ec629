"""The operator: reconciles `PipelineQuery` objects of a Kubernetes cluster with a service.

`definition` is the object's schema, `following` decides, `controller` watches the cluster and
reconciles changes, `leadership` elects the one of several controllers that acts (`running`).
"""
