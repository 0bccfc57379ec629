{{- define "circinus.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "circinus.labels" -}}
app.kubernetes.io/name: circinus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "circinus.selector" -}}
app.kubernetes.io/name: circinus
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* A value as text; a number, which YAML has as a float, without an exponent. */}}
{{- define "circinus.text" -}}
{{ ternary . (toJson .) (kindIs "string" .) }}
{{- end -}}

{{- define "circinus.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Names by which clients in the cluster and, as values say, elsewhere call the service. */}}
{{- define "circinus.hosts" -}}
{{- $name := include "circinus.name" . -}}
{{- $inside := printf "%s.%s" $name .Release.Namespace -}}
{{- $names := list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- $names = concat $names .Values.service.hosts }}
{{- $outside := list }}
{{- if .Values.ingress.enabled }}{{ $outside = concat $outside .Values.ingress.hosts }}{{ end }}
{{- if .Values.httpRoute.enabled }}{{ $outside = concat $outside .Values.httpRoute.hostnames }}{{ end }}
{{- range $outside }}{{ $names = append $names (trimPrefix "*" .) }}{{ end }}
{{- $names | uniq | join "," -}}
{{- end -}}

{{- define "circinus.tokenSecret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "circinus.name" .)) }}
{{- end -}}

{{/* Whether workers' certificates are made in the cluster, as nobody gives them; empty: no. */}}
{{- define "circinus.makesTls" -}}
{{- if and (eq .Values.deployment.target "kubernetes") (not .Values.tls.existingSecret) (not .Values.tls.certManager.enabled) }}true{{ end }}
{{- end -}}

{{/* Secrets with what workers, and the service that calls them, show each other. */}}
{{- define "circinus.workersSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-workers-%s" (include "circinus.name" .) (ternary "cert" "tls" .Values.tls.certManager.enabled)) }}
{{- end -}}

{{- define "circinus.serviceSecret" -}}
{{- $made := printf "%s-service-%s" (include "circinus.name" .) (ternary "cert" "tls" .Values.tls.certManager.enabled) -}}
{{ .Values.tls.existingClientSecret | default (.Values.tls.existingSecret | default $made) }}
{{- end -}}

{{/* The name of a NodePool, which is a label of its nodes; of the cluster, so the namespace is in it. */}}
{{- define "circinus.nodePool" -}}
{{- $name := join "-" (compact (list .root.Release.Namespace (include "circinus.name" .root) .pool.tier .pool.machineType)) -}}
{{- $name | lower | replace "_" "-" | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* What the pods of service and operator share. */}}
{{- define "circinus.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "circinus.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "circinus.tokenEnv" -}}
- name: CIRCINUS_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ include "circinus.tokenSecret" . }}, key: token}
{{- end -}}

{{- define "circinus.mounts" -}}
- {name: scratch, mountPath: /tmp}
{{- if .Values.environment.hostPath }}
- {name: environment, mountPath: /opt/environment, readOnly: true}
{{- end }}
{{- end -}}

{{- define "circinus.volumes" -}}
- {name: scratch, emptyDir: {}}
{{- if .Values.environment.hostPath }}
- name: environment
  hostPath: {path: {{ .Values.environment.hostPath | quote }}, type: Directory}
{{- end }}
{{- end -}}

{{- define "circinus.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* How many dispatchers there are; empty: the service answers requests by itself. */}}
{{- define "circinus.dispatchers" -}}
{{- if and (eq .Values.deployment.target "kubernetes") (gt (int .Values.dispatchers.replicas) 0) -}}
{{- int .Values.dispatchers.replicas -}}
{{- end -}}
{{- end -}}

{{/*
The other release, NAMESPACE/NAME, that installed the definition of PipelineQuery; empty: none did, or this one. A tool
that renders without a cluster is told of none.
*/}}
{{- define "circinus.definitionsOwner" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "pipelinequeries.circinus.io" -}}
{{- $notes := dig "metadata" "annotations" (dict) $there -}}
{{- $owner := printf "%s/%s" (get $notes "meta.helm.sh/release-namespace") (get $notes "meta.helm.sh/release-name") -}}
{{- if not (has $owner (list "/" (printf "%s/%s" .Release.Namespace .Release.Name))) }}{{ $owner }}{{ end }}
{{- end -}}
