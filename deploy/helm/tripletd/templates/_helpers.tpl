{{- define "tripletd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tripletd.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tripletd.labels" -}}
{{ include "tripletd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tripletd.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "tripletd.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "tripletd.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* Name of a secret, "" where there is none: (list $ "tls") */}}
{{- define "tripletd.secret" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $one := index $root.Values.secrets $name -}}
{{- if and $one.existingSecret $one.data -}}
{{- fail (printf "secrets.%s: give existingSecret or data, not both" $name) -}}
{{- else if $one.existingSecret -}}
{{ $one.existingSecret }}
{{- else if $one.data -}}
{{ include "tripletd.fullname" $root }}-{{ kebabcase $name }}
{{- end -}}
{{- end -}}

{{- define "tripletd.claim" -}}
{{ default (printf "%s-state" (include "tripletd.fullname" .)) .Values.storage.volume.existingClaim }}
{{- end -}}

{{/* Of every pod, where its configuration comes from: a change of it starts the pods again, one after another. */}}
{{- define "tripletd.checksums" -}}
tripletd/config: {{ .Values.config | sha256sum | trunc 16 }}
tripletd/secrets: {{ toJson .Values.secrets | sha256sum | trunc 16 }}
{{- end -}}

{{- define "tripletd.hosts" -}}
{{- $name := printf "%s-serve" (include "tripletd.fullname" .) -}}
{{- $own := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{ concat $own .Values.http.hosts | join "," }}
{{- end -}}

{{/* Settings that follow from the values; the environment wins over the file. */}}
{{- define "tripletd.env" -}}
- {name: TRIPLETD_CONFIG, value: /etc/tripletd/tripletd.toml}
- {name: TRIPLETD_HTTP__HOST, value: "0.0.0.0"}
- {name: TRIPLETD_HTTP__LEARN_PORT, value: "9101"}
- {name: TRIPLETD_HTTP__VALIDATE_PORT, value: "9102"}
- {name: TRIPLETD_HTTP__SERVE_PORT, value: "9103"}
- {name: TRIPLETD_HTTP__FEED_PORT, value: "9105"}
- {name: TRIPLETD_HTTP__MERGE_PORT, value: "9106"}
- {name: TRIPLETD_HTTP__HOSTS, value: {{ include "tripletd.hosts" . | quote }}}
- {name: TRIPLETD_HTTP__UNPROTECTED, value: {{ .Values.http.unprotected | quote }}}
{{- if include "tripletd.secret" (list . "tls") }}
- {name: TRIPLETD_HTTP__TLS_CERTIFICATE, value: /etc/tripletd/tls/tls.crt}
- {name: TRIPLETD_HTTP__TLS_KEY, value: /etc/tripletd/tls/tls.key}
{{- end }}
{{- if include "tripletd.secret" (list . "tokens") }}
- {name: TRIPLETD_HTTP__TOKENS, value: /etc/tripletd/tokens/tokens}
{{- end }}
- {name: TRIPLETD_SHARDS__COUNT, value: {{ .Values.shards.count | quote }}}
- {name: TRIPLETD_CHECKPOINTS__PATH, value: {{ default "/var/lib/tripletd/state/checkpoints" .Values.storage.path | quote }}}
- {name: TRIPLETD_CHECKPOINTS__CACHE, value: /var/lib/tripletd/cache/states}
- {name: TRIPLETD_CHECKPOINTS__CACHE_SIZE, value: {{ printf "%sB" .Values.storage.cacheSize | quote }}}
{{- with .Values.storage.endpoint }}
- {name: TRIPLETD_CHECKPOINTS__ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.storage.region }}
- {name: TRIPLETD_CHECKPOINTS__REGION, value: {{ . | quote }}}
{{- end }}
{{- if .Values.kafka.saslPassword }}
- {name: TRIPLETD_STREAM__KAFKA__SASL_PASSWORD_FILE, value: /etc/tripletd/kafka/sasl-password}
{{- end }}
{{- if .Values.kafka.ca }}
- {name: TRIPLETD_STREAM__KAFKA__SSL_CAFILE, value: /etc/tripletd/kafka/ca.crt}
{{- end }}
{{- if include "tripletd.secret" (list . "catalog") }}
- {name: TRIPLETD_CATALOG__SECRET_FILE, value: /etc/tripletd/catalog/password}
{{- end }}
- {name: XDG_CACHE_HOME, value: /var/lib/tripletd/cache}
- {name: HOME, value: /var/lib/tripletd/cache}
{{- end -}}

{{- define "tripletd.mounts" -}}
- {name: config, mountPath: /etc/tripletd/tripletd.toml, subPath: tripletd.toml, readOnly: true}
- {name: kernels, mountPath: /var/lib/tripletd/kernels}
- {name: cache, mountPath: /var/lib/tripletd/cache}
- {name: tmp, mountPath: /tmp}
{{- if not .Values.storage.path }}
- {name: state, mountPath: /var/lib/tripletd/state}
{{- end }}
{{- range $name := list "tls" "tokens" "kafka" "catalog" }}
{{- if include "tripletd.secret" (list $ $name) }}
- {name: {{ $name }}, mountPath: /etc/tripletd/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tripletd.volumes" -}}
- name: config
  configMap: {name: {{ include "tripletd.fullname" . }}}
- name: kernels
  emptyDir: {sizeLimit: 1Gi}
- name: cache
  emptyDir: {sizeLimit: {{ .Values.storage.cacheSize }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.storage.tmpSize }}}
{{- if not .Values.storage.path }}
- name: state
  persistentVolumeClaim: {claimName: {{ include "tripletd.claim" . }}}
{{- end }}
{{- range $name := list "tls" "tokens" "kafka" "catalog" }}
{{- with include "tripletd.secret" (list $ $name) }}
- name: {{ $name }}
  # Not readable by everybody: tripletd warns of secrets that are.
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tripletd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Spec of a pod: (dict "root" $ "role" "learn" "args" (list "learn") "port" 9101), and of some "env", "mounts", "volumes",
     "preStop", "spread" (keys of topology). */}}
{{- define "tripletd.podSpec" -}}
{{- $root := .root -}}{{- $values := index $root.Values .role -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne "" (include "tripletd.secret" (list $root "tls"))) -}}
serviceAccountName: {{ include "tripletd.serviceAccount" $root }}
automountServiceAccountToken: false
# Else a service named tripletd would set variables that begin with TRIPLETD_.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $values.gracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints: {{ toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else if .spread }}
topologySpreadConstraints:
  {{- range .spread }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tripletd.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $.role }}
  {{- end }}
{{- end }}
initContainers:
  # The image's kernels, compiled when it was built, into a folder that may be written: numba uses no other.
  - name: kernels
    image: {{ include "tripletd.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [cp, -r, /var/lib/tripletd/kernels/., /kernels/]
    securityContext: {{ include "tripletd.containerSecurity" $root | nindent 6 }}
    resources:
      requests: {cpu: 50m, memory: 64Mi}
      limits: {memory: 256Mi}
    volumeMounts:
      - {name: kernels, mountPath: /kernels}
containers:
  - name: {{ .role }}
    image: {{ include "tripletd.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{ toJson .args }}
    env:
      {{- include "tripletd.env" $root | nindent 6 }}
      {{- with .env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $root.Values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with include "tripletd.secret" (list $root "objectStore") }}
    envFrom:
      - secretRef: {name: {{ . }}}
    {{- end }}
    ports:
      - {name: http, containerPort: {{ .port }}}
    startupProbe:
      httpGet: {path: /startupz, port: http, scheme: {{ $scheme }}}
      {{- toYaml $root.Values.probes.startup | nindent 6 }}
    readinessProbe:
      httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
      {{- toYaml $root.Values.probes.readiness | nindent 6 }}
    livenessProbe:
      httpGet: {path: /livez, port: http, scheme: {{ $scheme }}}
      {{- toYaml $root.Values.probes.liveness | nindent 6 }}
    {{- if .preStop }}
    lifecycle:
      preStop:
        sleep: {seconds: {{ .preStop }}}
    {{- end }}
    securityContext: {{ include "tripletd.containerSecurity" $root | nindent 6 }}
    resources: {{ toYaml $values.resources | nindent 6 }}
    volumeMounts:
      {{- include "tripletd.mounts" $root | nindent 6 }}
      {{- with .mounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  {{- include "tripletd.volumes" $root | nindent 2 }}
  {{- with .volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Template of a pod, of the same arguments. */}}
{{- define "tripletd.pod" -}}
metadata:
  labels:
    {{- include "tripletd.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- include "tripletd.checksums" .root | nindent 4 }}
    {{- with (index .root.Values .role).podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "tripletd.podSpec" . | nindent 2 }}
{{- end -}}

{{/* Metadata of an object: (list $ "serve" "-serve"), the component and what its name ends with. */}}
{{- define "tripletd.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "tripletd.fullname" $root }}{{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "tripletd.labels" $root | nindent 2 }}
  {{- with index . 1 }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
{{- end -}}

{{- define "tripletd.match" -}}
matchLabels:
  {{- include "tripletd.selector" (index . 0) | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}
