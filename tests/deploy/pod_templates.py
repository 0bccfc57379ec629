"""Pod templates of users: none, and one that adds something to every part of a pod."""

from hypothesis import strategies as st

from circinus.deploy.kubernetes.pod_template import PodTemplate

TEMPLATES = st.sampled_from(
    [
        PodTemplate(),
        PodTemplate(
            {
                "metadata": {"labels": {"team": "ml"}, "annotations": {"a": "b"}},
                "spec": {
                    "tolerations": [{"key": "team", "operator": "Exists"}],
                    "imagePullSecrets": [{"name": "registry"}],
                    "priorityClassName": "batch",
                    "volumes": [{"name": "models", "emptyDir": {}}],
                    "containers": [
                        {
                            "name": "worker",
                            "env": [{"name": "A", "value": "b"}],
                            "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                        }
                    ],
                },
            }
        ),
    ]
)
