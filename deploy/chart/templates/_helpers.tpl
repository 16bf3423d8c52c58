{{/* Name of all objects. Labels of pods add up to 11 characters, and may have 63. */}}
{{- define "natsid.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Labels that select workers. A StatefulSet cannot change them. */}}
{{- define "natsid.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "natsid.origin" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "natsid.labels" -}}
{{ include "natsid.selector" . }}
{{ include "natsid.origin" . }}
{{- end }}

{{/* Labels that select the callers of .component, and all of theirs. */}}
{{- define "natsid.callerSelector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "natsid.callerLabels" -}}
{{ include "natsid.callerSelector" . }}
{{ include "natsid.origin" .root }}
{{- end }}

{{- define "natsid.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* URL of NATS. */}}
{{- define "natsid.url" -}}
{{- $nats := .Values.nats -}}
{{- if and $nats.url $nats.release -}}
{{- fail "nats.url and nats.release exclude each other: give one" -}}
{{- else if contains "@" $nats.url -}}
{{- fail "nats.url has a user, which everyone who may see pods could read: name a Secret in nats.auth" -}}
{{- else if $nats.url -}}
{{- $nats.url -}}
{{- else if $nats.release -}}
{{- $service := printf "%s-nats" $nats.release | trunc 63 | trimSuffix "-" -}}
{{- if contains "nats" $nats.release -}}
{{- $service = $nats.release -}}
{{- end -}}
{{- printf "nats://%s.%s.svc:4222" $service ($nats.releaseNamespace | default .Release.Namespace) -}}
{{- else -}}
{{- fail "natsid needs a NATS with JetStream: set nats.url, such as nats://nats.example.com:4222, or nats.release, the release of the official nats chart in this cluster" -}}
{{- end -}}
{{- end }}

{{/* Files with credentials of NATS, of .auth and .tls: each with the variable that names it, its
path below /etc/natsid, its Secret and the key. */}}
{{- define "natsid.natsFiles" -}}
{{- if and .auth.user (not .auth.password) -}}
{{- fail "auth.user needs auth.password: natsid takes a user alone for a token, which belongs in a Secret" -}}
{{- end -}}
{{- $all := list -}}
{{- $variables := dict "creds" "NATS_CREDS" "nkey" "NATS_NKEY"
  "token" "NATS_TOKEN_FILE" "password" "NATS_PASSWORD_FILE" -}}
{{- range $name, $variable := $variables -}}
{{- with index $.auth $name -}}
{{- $all = append $all (dict "env" $variable "path" (print "nats/" $name) "secret" .secret "key" .key) -}}
{{- end -}}
{{- end -}}
{{- with .tls.ca -}}
{{- $all = append $all (dict "env" "NATS_CA" "path" "nats/ca.crt" "secret" .secret "key" .key) -}}
{{- end -}}
{{- with .tls.client -}}
{{- $all = append $all (dict "env" "NATS_CERT" "path" "nats/tls.crt" "secret" . "key" "tls.crt") -}}
{{- $all = append $all (dict "env" "NATS_KEY" "path" "nats/tls.key" "secret" . "key" "tls.key") -}}
{{- end -}}
{{- toJson $all -}}
{{- end }}

{{/* The same of a worker, with those of MySQL and the page. */}}
{{- define "natsid.workerFiles" -}}
{{- $all := include "natsid.natsFiles" (dict "auth" .Values.nats.auth "tls" .Values.nats.tls) | fromJsonArray -}}
{{- with .Values.mysql.dsn -}}
{{- $all = append $all (dict "env" "NATSID_MYSQL_FILE" "path" "mysql/dsn" "secret" .secret "key" .key) -}}
{{- end -}}
{{- with .Values.mysql.ca -}}
{{- $all = append $all (dict "env" "NATSID_MYSQL_CA" "path" "mysql/ca.crt" "secret" .secret "key" .key) -}}
{{- end -}}
{{- with .Values.mysql.client -}}
{{- $all = append $all (dict "env" "NATSID_MYSQL_CERT" "path" "mysql/tls.crt" "secret" . "key" "tls.crt") -}}
{{- $all = append $all (dict "env" "NATSID_MYSQL_KEY" "path" "mysql/tls.key" "secret" . "key" "tls.key") -}}
{{- end -}}
{{- with .Values.http.token -}}
{{- $all = append $all (dict "env" "NATSID_HTTP_TOKEN_FILE" "path" "http/token" "secret" .secret "key" .key) -}}
{{- end -}}
{{- toJson $all -}}
{{- end }}

{{/* Variables that name the files of a list. */}}
{{- define "natsid.fileEnv" -}}
{{- range . }}
- name: {{ .env }}
  value: /etc/natsid/{{ .path }}
{{- end }}
{{- end }}

{{/* The volume with the files of a list. */}}
{{- define "natsid.fileVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          name: {{ .secret }}
          items: [{key: {{ .key | quote }}, path: {{ .path }}}]
      {{- end }}
{{- end }}

{{/* One of natsid's settings as a variable, of .flag and .value. JSON writes large numbers in full. */}}
{{- define "natsid.setting" -}}
- name: NATSID_{{ .flag | upper | replace "-" "_" }}
  value: {{ kindIs "string" .value | ternary .value (toJson .value) | quote }}
{{- end }}

{{- define "natsid.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "natsid.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The pod of a caller with .container, and the credentials of .caller or else of the workers. */}}
{{- define "natsid.caller" -}}
{{- $values := .root.Values -}}
{{- $auth := .caller.auth | default $values.nats.auth -}}
{{- $files := include "natsid.natsFiles" (dict "auth" $auth "tls" $values.nats.tls) | fromJsonArray -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "natsid.podSecurity" . | nindent 2 }}
containers:
  - image: {{ include "natsid.image" .root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    {{- toYaml .container | nindent 4 }}
    env:
      - name: NATS_URL
        value: {{ include "natsid.url" .root | quote }}
      {{- with $auth.user }}
      - name: NATS_USER
        value: {{ . | quote }}
      {{- end }}
      {{- include "natsid.fileEnv" $files | nindent 6 }}
      {{- range $flag := list "namespace" "layout" "epoch" }}
      {{- with index $values.settings $flag }}
      {{- include "natsid.setting" (dict "flag" $flag "value" .) | nindent 6 }}
      {{- end }}
      {{- end }}
      {{- with .caller.inboxPrefix | default (index $values.settings "inbox-prefix") }}
      {{- include "natsid.setting" (dict "flag" "inbox-prefix" "value" .) | nindent 6 }}
      {{- end }}
    {{- with $values.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext: {{- include "natsid.containerSecurity" . | nindent 6 }}
    {{- if $files }}
    volumeMounts:
      - {name: secrets, mountPath: /etc/natsid, readOnly: true}
    {{- end }}
{{- if $files }}
volumes: {{- include "natsid.fileVolume" $files | nindent 2 }}
{{- end }}
{{- end }}
