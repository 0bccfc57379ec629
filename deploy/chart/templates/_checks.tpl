{{/* Settings that the chart makes of other values, each with the value to use. Its names are all that `deployment.yaml` sets. */}}
{{- define "circinus.reserved" -}}
CIRCINUS_HOST: service.port
CIRCINUS_PORT: service.port
CIRCINUS_ALLOWED_HOSTS: service.hosts
CIRCINUS_DATABASE_URL: persistence
CIRCINUS_WORKER_LOGS: persistence
CIRCINUS_INFRASTRUCTURE: infrastructure.preset or infrastructure.document
CIRCINUS_DISCOVERY: discovery.enabled
CIRCINUS_TARGET: deployment.target
CIRCINUS_DISPATCHERS: dispatchers.replicas
CIRCINUS_NAMESPACE: helm's --namespace
CIRCINUS_RELEASE: the release's name
CIRCINUS_OWNER: the release's name
CIRCINUS_WORKER_IMAGE: deployment.workerImage
CIRCINUS_WORKER_POD_TEMPLATE: deployment.podTemplate
CIRCINUS_WORKER_PULL_POLICY: image.pullPolicy
CIRCINUS_WORKER_TLS: tls.existingClientSecret
CIRCINUS_WORKER_TLS_SECRET: tls.existingSecret
CIRCINUS_WORKER_ENVIRONMENT: environment.hostPath
CIRCINUS_MACHINE_CPU: deployment.machine.cpu
CIRCINUS_MACHINE_MEMORY: deployment.machine.memory
CIRCINUS_TOKEN: token.existingSecret
{{- end -}}

{{/* What a schema cannot say, or not in words. */}}
{{- define "circinus.check" -}}
{{- $reserved := include "circinus.reserved" . | fromYaml }}
{{- range $name, $value := .Values.settings }}
{{- with get $reserved $name }}
{{- fail (printf "settings.%s must not be set: the chart makes it of %s. Set that, got settings.%s=%v." $name . $name $value) }}
{{- end }}
{{- end }}
{{- if and .Values.infrastructure.preset .Values.infrastructure.document }}
{{- fail (printf "infrastructure.preset and infrastructure.document must not both be set, got the preset %q and a document." .Values.infrastructure.preset) }}
{{- end }}
{{- if and .Values.calibration.enabled (not .Values.calibration.pipelines) }}
{{- fail "calibration.pipelines must name at least one pipeline where calibration.enabled is true, got none." }}
{{- end }}
{{- if and .Values.nodePools (ne .Values.deployment.target "kubernetes") }}
{{- fail (printf "nodePools must be empty unless deployment.target is kubernetes, got %d of them and the target %q." (len .Values.nodePools) .Values.deployment.target) }}
{{- end }}
{{- $pools := list }}
{{- range .Values.nodePools }}
{{- $pool := include "circinus.nodePool" (dict "root" $ "pool" .) }}
{{- if has $pool $pools }}
{{- fail (printf "nodePools must have names of their own, made of tier and machineType, got %q twice." $pool) }}
{{- end }}
{{- $pools = append $pools $pool }}
{{- end }}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.enabled }}
{{- fail (printf "tls.existingSecret must be empty where tls.certManager.enabled is true, got %q." .Values.tls.existingSecret) }}
{{- end }}
{{- if and .Values.tls.existingClientSecret (not .Values.tls.existingSecret) }}
{{- fail (printf "tls.existingClientSecret must be empty where tls.existingSecret is, as one authority signs both, got %q." .Values.tls.existingClientSecret) }}
{{- end }}
{{- end -}}
