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

{{- define "circinus.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Names by which clients in the cluster and, of `service.hosts`, elsewhere call the service. */}}
{{- define "circinus.hosts" -}}
{{- $name := include "circinus.name" . -}}
{{- $inside := printf "%s.%s" $name .Release.Namespace -}}
{{- $names := list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- concat $names .Values.service.hosts | join "," -}}
{{- end -}}

{{- define "circinus.tokenSecret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "circinus.name" .)) }}
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
