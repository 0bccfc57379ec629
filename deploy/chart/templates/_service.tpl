{{/* Where the infrastructure is that somebody gave: a preset's name, or a file. */}}
{{- define "circinus.given" -}}
{{- ternary (.Values.infrastructure.preset | default "local") "/etc/circinus/infrastructure.yaml" (empty .Values.infrastructure.document) }}
{{- end -}}

{{/* Where the one is that is planned for. */}}
{{- define "circinus.infrastructure" -}}
{{- ternary "/var/lib/circinus/infrastructure.calibrated.yaml" (include "circinus.given" .) .Values.calibration.enabled }}
{{- end -}}

{{/* The environment of the service, and of what measures workers as it starts them. */}}
{{- define "circinus.serviceEnv" -}}
- {name: CIRCINUS_HOST, value: "0.0.0.0"}
- {name: CIRCINUS_PORT, value: "8350"}
- {name: CIRCINUS_ALLOWED_HOSTS, value: {{ include "circinus.hosts" . | quote }}}
- {name: CIRCINUS_DATABASE_URL, value: "sqlite:////var/lib/circinus/circinus.sqlite3"}
- {name: CIRCINUS_WORKER_LOGS, value: /tmp/logs}
- name: CIRCINUS_INFRASTRUCTURE
  value: {{ include "circinus.infrastructure" . | quote }}
{{- if .Values.discovery.enabled }}
- {name: CIRCINUS_DISCOVERY, value: "true"}
{{- end }}
{{- if eq .Values.deployment.target "kubernetes" }}
- {name: CIRCINUS_TARGET, value: kubernetes}
- {name: CIRCINUS_NAMESPACE, value: {{ .Release.Namespace }}}
- {name: CIRCINUS_RELEASE, value: {{ .Release.Name | quote }}}
- {name: CIRCINUS_OWNER, value: {{ include "circinus.name" . | quote }}}
{{- with include "circinus.dispatchers" . }}
- {name: CIRCINUS_DISPATCHERS, value: {{ . | quote }}}
{{- end }}
- name: CIRCINUS_WORKER_IMAGE
  value: {{ .Values.deployment.workerImage | default (printf "circinus/worker:%s" (.Values.image.tag | default .Chart.AppVersion)) | quote }}
- {name: CIRCINUS_WORKER_PULL_POLICY, value: {{ .Values.image.pullPolicy }}}
- {name: CIRCINUS_WORKER_TLS_SECRET, value: {{ include "circinus.workersSecret" . }}}
- {name: CIRCINUS_MACHINE_CPU, value: {{ include "circinus.text" .Values.deployment.machine.cpu | quote }}}
- {name: CIRCINUS_MACHINE_MEMORY, value: {{ .Values.deployment.machine.memory | quote }}}
{{- with .Values.deployment.podTemplate }}
- {name: CIRCINUS_WORKER_POD_TEMPLATE, value: {{ toJson . | quote }}}
{{- end }}
{{- with .Values.environment.hostPath }}
- {name: CIRCINUS_WORKER_ENVIRONMENT, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ include "circinus.text" $value | quote }}}
{{- end }}
{{- include "circinus.tokenEnv" . | nindent 0 }}
{{- end -}}

{{- define "circinus.serviceMounts" -}}
- {name: state, mountPath: /var/lib/circinus}
{{- if eq .Values.deployment.target "kubernetes" }}
- {name: tls, mountPath: /etc/circinus-tls, readOnly: true}
{{- end }}
{{- if .Values.infrastructure.document }}
- {name: infrastructure, mountPath: /etc/circinus, readOnly: true}
{{- end }}
{{- include "circinus.mounts" . | nindent 0 }}
{{- end -}}
