{{/* Names, labels and what several templates need to agree on. */}}

{{- define "broker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "broker.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "broker.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "broker.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "broker.selector" -}}
app.kubernetes.io/name: {{ include "broker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "broker.labels" -}}
{{ include "broker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "broker.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "broker.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "broker.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "broker.redis.fullname" -}}
{{ include "broker.fullname" . }}-trial-redis
{{- end -}}

{{/* The Secret with the URL of Redis. */}}
{{- define "broker.redis.secret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis" (include "broker.fullname" .)) -}}
{{- end -}}

{{- define "broker.redis.key" -}}
{{- if .Values.redis.existingSecret -}}{{ .Values.redis.existingSecretKey }}{{- else -}}redis-url{{- end -}}
{{- end -}}

{{/* What brokers and workers both need to know of Redis. */}}
{{- define "broker.redis.env" -}}
- name: BROKER_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "broker.redis.secret" . }}
      key: {{ include "broker.redis.key" . }}
- name: BROKER_PREFIX
  value: {{ .Values.redis.prefix | quote }}
{{- with .Values.redis.auth }}
{{- if .usernameKey }}
- name: BROKER_REDIS__USERNAME
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret }}, key: {{ .usernameKey }}}
{{- else if .username }}
- name: BROKER_REDIS__USERNAME
  value: {{ .username | quote }}
{{- end }}
{{- if .existingSecret }}
- name: BROKER_REDIS__PASSWORD_FILE
  value: /etc/broker/redis-password/password
{{- end }}
{{- end }}
{{- with .Values.redis.sentinel }}
{{- if .username }}
- name: BROKER_REDIS__SENTINEL_USERNAME
  value: {{ .username | quote }}
{{- end }}
{{- if .existingSecret }}
- name: BROKER_REDIS__SENTINEL_PASSWORD_FILE
  value: /etc/broker/sentinel-password/password
{{- end }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if .caSecret }}
- name: BROKER_REDIS__CA_FILE
  value: /etc/broker/redis-ca/ca.crt
{{- end }}
{{- if .certSecret }}
- name: BROKER_REDIS__CERT_FILE
  value: /etc/broker/redis-cert/tls.crt
- name: BROKER_REDIS__KEY_FILE
  value: /etc/broker/redis-cert/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* The Secrets of Redis that are files: name of the mount, Secret, and key -> file ("" is all keys). Never by
subPath: only a whole directory follows a Secret that changes. */}}
{{- define "broker.redis.files" -}}
{{- $files := list -}}
{{- with .Values.redis.auth.existingSecret }}{{ $files = append $files (list "redis-password" . $.Values.redis.auth.passwordKey "password") }}{{ end -}}
{{- with .Values.redis.sentinel.existingSecret }}{{ $files = append $files (list "sentinel-password" . $.Values.redis.sentinel.passwordKey "password") }}{{ end -}}
{{- with .Values.redis.tls.caSecret }}{{ $files = append $files (list "redis-ca" . $.Values.redis.tls.caKey "ca.crt") }}{{ end -}}
{{- with .Values.redis.tls.certSecret }}{{ $files = append $files (list "redis-cert" . "" "") }}{{ end -}}
{{- toJson $files -}}
{{- end -}}

{{- define "broker.redis.mounts" -}}
{{- range include "broker.redis.files" . | fromJsonArray }}
- name: {{ index . 0 }}
  mountPath: /etc/broker/{{ index . 0 }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "broker.redis.volumes" -}}
{{- range include "broker.redis.files" . | fromJsonArray }}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    {{- if index . 2 }}
    items: [{key: {{ index . 2 | quote }}, path: {{ index . 3 }}}]
    {{- end }}
{{- end }}
{{- end -}}

{{/* The Hosts that requests may have: what routes to us, and the Service's own names. */}}
{{- define "broker.allowedHosts" -}}
{{- $service := include "broker.fullname" . -}}
{{- $hosts := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) (printf "%s.%s.svc.cluster.local" $service .Release.Namespace) "localhost" "127.0.0.1" -}}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts .Values.ingress.hosts }}{{ end -}}
{{- if .Values.httpRoute.enabled }}{{ $hosts = concat $hosts .Values.httpRoute.hostnames }}{{ end -}}
{{- concat $hosts .Values.http.allowedHosts | uniq | join "," -}}
{{- end -}}

{{/* Seconds from a pod's removal to SIGKILL. */}}
{{- define "broker.grace" -}}
{{- $needed := add .Values.shutdown.preStopSeconds .Values.shutdown.drainSeconds .Values.shutdown.marginSeconds -}}
{{- $given := .Values.shutdown.terminationGracePeriodSeconds -}}
{{- if and $given (lt (int $given) (int $needed)) -}}
{{- fail (printf "shutdown.terminationGracePeriodSeconds is %d, but preStop + drain + margin are %d: streams would be cut. Leave it out, or shorten shutdown.drainSeconds." (int $given) (int $needed)) -}}
{{- end -}}
{{- $given | default $needed -}}
{{- end -}}

{{/* Paths of the public port that lead in from outside. */}}
{{- define "broker.paths" -}}
{{- $paths := list "/mcp" "/t" "/.well-known/oauth-protected-resource" -}}
{{- if .exposePublishing }}{{ $paths = append $paths "/v1" }}{{ end -}}
{{- toJson $paths -}}
{{- end -}}

{{/* The pod's parts that brokers, workers and the test share. */}}
{{- define "broker.pod" -}}
serviceAccountName: {{ include "broker.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "broker.rollingUpdate" -}}
type: RollingUpdate
rollingUpdate:
  maxUnavailable: 0
  maxSurge: {{ .Values.rollout.maxSurge }}
{{- end -}}
