{{- define "rebate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "rebate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rebate.labels" -}}
{{ include "rebate.selector" . }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Whether clients connect over a socket of the node or pod, and not over the network. */}}
{{- define "rebate.isLocal" -}}
{{- if has .Values.mode (list "node" "sidecar") }}true{{ end -}}
{{- end -}}

{{- define "rebate.hasGrpc" -}}
{{- if or .Values.grpc.enabled (eq .Values.mode "compression") }}true{{ end -}}
{{- end -}}

{{/* What the process may plan with, server.memory_max (MiB). */}}
{{- define "rebate.plannedMiB" -}}
{{ ternary (add .Values.memoryMiB .Values.overheadMiB) (int64 .Values.overheadMiB) (eq .Values.mode "cache") }}
{{- end -}}

{{/* The memory of the container (MiB): the heap loses up to a tenth to fragments. */}}
{{- define "rebate.memoryMiB" -}}
{{ div (mul (int64 (include "rebate.plannedMiB" .)) 11) 10 }}
{{- end -}}

{{/* Refuses values that contradict each other, before anything is deployed. */}}
{{- define "rebate.check" -}}
{{- $v := .Values -}}
{{- $inFront := has $v.mode (list "frontend" "node" "sidecar") -}}
{{- if and $inFront (not $v.store) -}}
{{- fail (printf "mode %s needs store: the memcached servers or store services, such as memcached://10.0.0.1" $v.mode) -}}
{{- end -}}
{{- if and (not $inFront) $v.store -}}
{{- fail (printf "store is %s, and mode %s has none: remove it, or use mode frontend" $v.store $v.mode) -}}
{{- end -}}
{{- if and (not (include "rebate.isLocal" .)) (not $v.access.secretName) (not $v.insecure) (ne $v.tls.clientAuth "require") -}}
{{- fail "every pod that the NetworkPolicy lets in could read, change and remove every item: set access.secretName, or tls.clientAuth=require, or accept it with insecure=true" -}}
{{- end -}}
{{- if and (ne $v.tls.clientAuth "none") (not $v.tls.secretName) -}}
{{- fail "tls.clientAuth is set and tls.secretName is not: there is no TLS" -}}
{{- end -}}
{{- if and $v.tls.secretName (include "rebate.isLocal" .) -}}
{{- fail (printf "tls.secretName is set, and mode %s listens only on a Unix socket" $v.mode) -}}
{{- end -}}
{{- if and (eq $v.mode "sidecar") (not $v.sidecar.containers) -}}
{{- fail "mode sidecar needs sidecar.containers: your containers" -}}
{{- end -}}
{{- range list $v.store $v.otlp.address -}}
{{- if and (contains "tls://" .) (not $v.upstreamCa.secretName) (not (dig "tls" "upstream_ca_file" "" $v.config)) -}}
{{- fail (printf "%s is reached over TLS: set upstreamCa.secretName, the authorities of its certificate" .) -}}
{{- end -}}
{{- end -}}
{{- if and $v.otlp.secretName (not $v.otlp.address) -}}
{{- fail "otlp.secretName is set and otlp.address is not: there is no collector to send it to" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (ne $v.mode "frontend") -}}
{{- fail (printf "autoscaling.enabled is for mode frontend only: with mode %s others know the pods by name" $v.mode) -}}
{{- end -}}
{{- if and (gt (float64 $v.cpu.limit) 0.0) (lt (float64 $v.cpu.limit) (float64 $v.cpu.request)) -}}
{{- fail (printf "cpu.limit is %v, below cpu.request, which is %v" $v.cpu.limit $v.cpu.request) -}}
{{- end -}}
{{- end -}}

{{/* rebate.toml as a map. */}}
{{- define "rebate.config" -}}
{{- $v := .Values -}}
{{- $tls := ternary "tls://" "" (ne $v.tls.secretName "") -}}
{{- $server := dict "threads" (max 1 (int (floor (float64 $v.cpu.request)))) "admin_listen" "0.0.0.0:9150" "log_format" "json" -}}
{{- $_ := set $server "memory_max" (printf "%sMiB" (include "rebate.plannedMiB" .)) -}}
{{- $store := dict -}}
{{- $runtime := dict -}}
{{- $other := dict -}}
{{- if eq $v.mode "compression" -}}
{{- $_ := set $server "roles" (list "compression") -}}
{{- else if include "rebate.isLocal" . -}}
{{- $_ := set $server "roles" (list "frontend") -}}
{{- $_ := set $server "unix_socket" (printf "%s/memcached" $v.socketDirectory) -}}
{{- $_ := set $server "unix_socket_mode" 438 -}}
{{- else -}}
{{- $_ := set $server "roles" (list "frontend") -}}
{{- $_ := set $server "listen" (list (printf "%s0.0.0.0:11211" $tls)) -}}
{{- end -}}
{{- if include "rebate.hasGrpc" . -}}
{{- $_ := set $server "grpc_listen" (list (printf "%s0.0.0.0:50051" $tls)) -}}
{{- end -}}
{{- if $v.insecure -}}{{- $_ := set $server "insecure" true -}}{{- end -}}
{{- if $v.access.secretName -}}{{- $_ := set $server "access_file" "/etc/rebate/access/access.toml" -}}{{- end -}}
{{- if eq $v.mode "cache" -}}
{{- $_ := set $store "memory" (printf "%dMiB" (int64 $v.memoryMiB)) -}}
{{- $_ := set $store "file" "/var/lib/rebate/items" -}}
{{- else if $v.store -}}
{{- $_ := set $store "url" $v.store -}}
{{- end -}}
{{- if $v.storeLogin.secretName -}}{{- $_ := set $store "login_file" "/etc/rebate/login/login" -}}{{- end -}}
{{- if and $v.compression.service (ne $v.mode "compression") -}}
{{- $addresses := list -}}
{{- range $index := until (int $v.compression.replicas) -}}
{{- $pod := printf "%s-%d.%s" (trimSuffix "-pods" $v.compression.service) $index $v.compression.service -}}
{{- $addresses = append $addresses (printf "%s:50051" $pod) -}}
{{- end -}}
{{- $_ := set $runtime "compression" $addresses -}}
{{- $_ := set $runtime "policy" "least-latency" -}}
{{- end -}}
{{- $config := dict "server" $server -}}
{{- if $store -}}{{- $_ := set $config "store" $store -}}{{- end -}}
{{- if $runtime -}}{{- $_ := set $config "runtime" $runtime -}}{{- end -}}
{{- $certificates := dict -}}
{{- if $v.tls.secretName -}}
{{- $_ := set $certificates "cert_file" "/etc/rebate/tls/tls.crt" -}}
{{- $_ := set $certificates "key_file" "/etc/rebate/tls/tls.key" -}}
{{- if ne $v.tls.clientAuth "none" -}}
{{- $_ := set $certificates "client_auth" $v.tls.clientAuth -}}
{{- $_ := set $certificates "ca_file" "/etc/rebate/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if $v.upstreamCa.secretName -}}{{- $_ := set $certificates "upstream_ca_file" "/etc/rebate/upstream-ca/ca.crt" -}}{{- end -}}
{{- if $certificates -}}{{- $_ := set $config "tls" $certificates -}}{{- end -}}
{{- if $v.valueKeys.secretName -}}
{{- $_ := set $config "values" (dict "path" (list "compress" "encrypt") "keys" "/etc/rebate/keys/keys") -}}
{{- end -}}
{{- if $v.otlp.address -}}
{{- $otlp := dict "address" $v.otlp.address -}}
{{- if $v.otlp.secretName -}}{{- $_ := set $otlp "headers_file" "/etc/rebate/otlp/headers" -}}{{- end -}}
{{- $_ := set $config "otlp" $otlp -}}
{{- end -}}
{{- /* A value of JSON is one of TOML. toToml would write whole numbers as 2.0. */ -}}
{{- range $section, $keys := mergeOverwrite $config (deepCopy $v.config) }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{ end -}}
{{- end -}}
