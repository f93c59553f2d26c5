{{/* The container of Rebate. */}}
{{- define "rebate.container" -}}
{{- $v := .Values -}}
name: rebate
image: "{{ $v.image.repository }}:{{ $v.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ $v.image.pullPolicy }}
args: [serve, --config, /etc/rebate/config/rebate.toml]
ports:
  {{- if and (not (include "rebate.isLocal" .)) (ne $v.mode "compression") }}
  - {name: memcached, containerPort: 11211}
  {{- end }}
  {{- if include "rebate.hasGrpc" . }}
  - {name: grpc, containerPort: 50051}
  {{- end }}
  - {name: admin, containerPort: 9150}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources:
  requests:
    cpu: {{ $v.cpu.request | quote }}
    memory: {{ include "rebate.memoryMiB" . }}Mi
  limits:
    {{- if gt (float64 $v.cpu.limit) 0.0 }}
    cpu: {{ $v.cpu.limit | quote }}
    {{- end }}
    memory: {{ include "rebate.memoryMiB" . }}Mi
# Saved items are loaded before anything is served.
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 5
volumeMounts:
  - {name: config, mountPath: /etc/rebate/config, readOnly: true}
  {{- if $v.access.secretName }}
  - {name: access, mountPath: /etc/rebate/access, readOnly: true}
  {{- end }}
  {{- if $v.tls.secretName }}
  - {name: tls, mountPath: /etc/rebate/tls, readOnly: true}
  {{- end }}
  {{- if $v.storeLogin.secretName }}
  - {name: login, mountPath: /etc/rebate/login, readOnly: true}
  {{- end }}
  {{- if $v.valueKeys.secretName }}
  - {name: keys, mountPath: /etc/rebate/keys, readOnly: true}
  {{- end }}
  {{- if $v.upstreamCa.secretName }}
  - {name: upstream-ca, mountPath: /etc/rebate/upstream-ca, readOnly: true}
  {{- end }}
  {{- if $v.otlp.secretName }}
  - {name: otlp, mountPath: /etc/rebate/otlp, readOnly: true}
  {{- end }}
  {{- if eq $v.mode "cache" }}
  - {name: items, mountPath: /var/lib/rebate}
  {{- end }}
  {{- if include "rebate.isLocal" . }}
  - {name: socket, mountPath: {{ $v.socketDirectory }}}
  {{- end }}
{{- end -}}

{{/* The pod's template. */}}
{{- define "rebate.pod" -}}
{{- $v := .Values -}}
metadata:
  labels:
    {{- include "rebate.labels" . | nindent 4 }}
    {{- with $v.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # Keys that need a restart are taken over too.
    checksum/config: {{ include "rebate.config" . | sha256sum }}
    {{- with $v.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  automountServiceAccountToken: false
  # Longer than server.drain_timeout_ms and store.save_timeout_ms.
  terminationGracePeriodSeconds: 90
  securityContext:
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $v.topologySpread.enabled (ne $v.mode "node") }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "rebate.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- if eq $v.mode "sidecar" }}
  initContainers:
    # It starts before your containers and ends after them.
    - restartPolicy: Always
      {{- include "rebate.container" . | nindent 6 }}
  containers:
    {{- range $v.sidecar.containers }}
    - {{ toYaml (omit . "volumeMounts") | nindent 6 | trim }}
      volumeMounts:
        - {name: socket, mountPath: {{ $v.socketDirectory }}}
        {{- with .volumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
    {{- end }}
  {{- else }}
  containers:
    - {{ include "rebate.container" . | nindent 6 | trim }}
  {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "rebate.name" . }}}
    {{- range $volume, $secret := dict "access" $v.access.secretName "tls" $v.tls.secretName "login" $v.storeLogin.secretName "keys" $v.valueKeys.secretName "otlp" $v.otlp.secretName "upstream-ca" $v.upstreamCa.secretName }}
    {{- if $secret }}
    - name: {{ $volume }}
      secret: {secretName: {{ $secret }}, defaultMode: 0440}
    {{- end }}
    {{- end }}
    {{- if eq $v.mode "node" }}
    - name: socket
      hostPath: {path: {{ $v.socketDirectory }}, type: Directory}
    {{- else if eq $v.mode "sidecar" }}
    - name: socket
      emptyDir: {}
    {{- end }}
    {{- if and (eq $v.mode "cache") (not $v.persistence.enabled) }}
    - name: items
      emptyDir: {}
    {{- end }}
    {{- with $v.sidecar.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}
