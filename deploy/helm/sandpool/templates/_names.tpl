{{- define "sandpool.selector" -}}
app.kubernetes.io/name: sandpool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "sandpool.labels" -}}
{{ include "sandpool.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sandpool.router.selector" -}}
app.kubernetes.io/name: sandpool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: router
{{- end }}

{{- define "sandpool.router.labels" -}}
{{ include "sandpool.router.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Whether a router runs here. Values kept from an earlier chart do not say so: then none does. */ -}}
{{- define "sandpool.router.here" -}}
{{- if and .Values.router.enabled (not .Values.router.namespace) }}yes{{ end }}
{{- end }}

{{- define "sandpool.account" -}}
{{ .Values.serviceAccount.name | default .Values.fullname }}
{{- end }}

{{- define "sandpool.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Objects that are in no namespace: several restricted installations must not overwrite each other's. */ -}}
{{- define "sandpool.clusterName" -}}
{{- if .Values.watchNamespaces }}{{ .Values.fullname }}-{{ .Release.Namespace }}{{ else }}{{ .Values.fullname }}{{ end }}
{{- end }}

{{- /* A role and its binding. Takes root, name, namespace (none: cluster-wide), rules, and for the router labels and account. */ -}}
{{- define "sandpool.granted" -}}
{{- $kind := ternary "Role" "ClusterRole" (not (empty .namespace)) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- .labels | default (include "sandpool.labels" .root) | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- .labels | default (include "sandpool.labels" .root) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account | default (include "sandpool.account" .root) }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- /* The arguments of the container, one on each line. */ -}}
{{- define "sandpool.arguments" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection) }}
{{- fail "replicas is above 1 but leaderElection is false: replicas would act at once. Set leaderElection to true, or replicas to 1." }}
{{- end -}}
- controller
- {{ ternary "--leader-elect" "--no-leader-elect" .Values.leaderElection }}
- {{ ternary "--extensions" "--no-extensions" .Values.extensions }}
- --log-format={{ .Values.logFormat }}
{{- with .Values.watchNamespaces }}
- --watch-namespaces={{ join "," . }}
{{- end }}
{{- if ne .Values.clusterDomain "cluster.local" }}
- --cluster-domain={{ .Values.clusterDomain }}
{{- end }}
{{- with .Values.router.namespace }}
- --router-namespace={{ . }}
{{- end }}
{{- /* Values kept from an earlier chart have no hardening: then the program's own defaults hold. */ -}}
{{- $given := list
  (list "--default-limits" (.Values.hardening).defaultLimits)
  (list "--default-requests" (.Values.hardening).defaultRequests)
  (list "--kube-api-qps" .Values.kubeApi.qps)
  (list "--kube-api-burst" .Values.kubeApi.burst)
  (list "--sandbox-claim-concurrent-workers" .Values.workers.claim)
  (list "--sandbox-concurrent-workers" .Values.workers.sandbox)
  (list "--sandbox-warm-pool-concurrent-workers" .Values.workers.pool)
  (list "--sandbox-template-concurrent-workers" .Values.workers.template)
  (list "--sandbox-warm-pool-max-refill-rate" .Values.refill.rate)
  (list "--sandbox-warm-pool-max-batch-size" .Values.refill.batch) }}
{{- range $given }}
{{- if not (kindIs "invalid" (index . 1)) }}
- {{ index . 0 }}={{ index . 1 }}
{{- end }}
{{- end }}
{{- if .Values.tracing.enabled }}
- --enable-tracing
{{- end }}
{{- include "sandpool.metricsArguments" . }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The arguments of the router, one on each line. */ -}}
{{- define "sandpool.router.arguments" -}}
- router
- --log-format={{ .Values.logFormat }}
{{- if .Values.router.audit }}
- --audit-log=-
{{- end }}
- --token-key-file=/etc/sandbox-router/keys
{{- with .Values.watchNamespaces }}
- --namespaces={{ join "," . }}
{{- end }}
{{- if not .Values.router.activity }}
- --no-activity
{{- end }}
{{- if .Values.router.trustPortForward }}
- --trust-port-forward
{{- end }}
{{- with .Values.router.url }}
- --url={{ . }}
{{- end }}
{{- include "sandpool.metricsArguments" . }}
{{- with .Values.router.tlsSecret }}
- --tls-cert-file=/etc/sandbox-router/tls/tls.crt
- --tls-key-file=/etc/sandbox-router/tls/tls.key
{{- end }}
{{- with .Values.router.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Values kept from an earlier chart do not have what later ones brought: it is off then. */ -}}
{{- define "sandpool.metricsArguments" -}}
{{- with (.Values.metrics).tls }}
{{- if .enabled }}
- --metrics-secure-serving
{{- if .secret }}
- --metrics-cert-dir=/etc/sandpool/metrics-tls
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The Secret with the certificate of the metrics, if there is one in use. */ -}}
{{- define "sandpool.metricsSecret" -}}
{{- with (.Values.metrics).tls }}
{{- if .enabled }}{{ .secret }}{{ end }}
{{- end }}
{{- end }}

{{- define "sandpool.metricsMount" -}}
- name: metrics-tls
  mountPath: /etc/sandpool/metrics-tls
  readOnly: true
{{- end }}

{{- define "sandpool.metricsVolume" -}}
- name: metrics-tls
  secret:
    secretName: {{ include "sandpool.metricsSecret" . }}
    defaultMode: 288
{{- end }}

{{- /* One endpoint of a ServiceMonitor. Takes root and the name of the Service. */ -}}
{{- define "sandpool.endpoint" -}}
{{- $monitor := .root.Values.metrics.serviceMonitor }}
- port: metrics
  path: /metrics
  interval: {{ $monitor.interval }}
  {{- with $monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- if ((.root.Values.metrics).tls).enabled }}
  scheme: https
  tlsConfig:
    {{- if $monitor.tlsConfig }}
    {{- toYaml $monitor.tlsConfig | nindent 4 }}
    {{- else if include "sandpool.metricsSecret" .root }}
    ca:
      secret:
        name: {{ include "sandpool.metricsSecret" .root }}
        key: ca.crt
    serverName: {{ .service }}.{{ .root.Release.Namespace }}.svc
    {{- else }}
    insecureSkipVerify: true
    {{- end }}
  {{- end }}
{{- end }}
