{{/* How many pods of a component may be ended at a time on purpose; one that is not ready always may. */}}
{{- define "circinus.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "circinus.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "circinus.selector" . | nindent 6 }}
{{- end -}}
