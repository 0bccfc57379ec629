{{/* What fills in the Secrets that `args` name; done already is fine. */}}
{{- define "circinus.credentialsJob" -}}
{{- with .root -}}
backoffLimit: 6
template:
  metadata:
    labels: {{- include "circinus.selector" (dict "root" . "component" "credentials") | nindent 6 }}
  spec:
    restartPolicy: OnFailure
    serviceAccountName: {{ include "circinus.name" . }}-credentials
    enableServiceLinks: false   # a release named circinus would set CIRCINUS_PORT by them
    securityContext: {{- include "circinus.podSecurity" . | nindent 6 }}
    containers:
      - name: credentials
        image: {{ include "circinus.image" . | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args: {{- toYaml $.args | nindent 10 }}
        resources: {{- toYaml .Values.credentials.resources | nindent 10 }}
        securityContext: {{- include "circinus.containerSecurity" . | nindent 10 }}
        terminationMessagePolicy: FallbackToLogsOnError
        volumeMounts: {{- include "circinus.mounts" . | nindent 10 }}
    volumes: {{- include "circinus.volumes" . | nindent 6 }}
    {{- include "circinus.placement" . | nindent 4 }}
{{- end }}
{{- end -}}
