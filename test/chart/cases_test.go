package chart

// cases are values and what is the same with kustomize. Together they set every value.
var cases = []struct{ name, values, kustomization string }{
	{"defaults", ``, observing},
	{"base", `history: {enabled: false}`, `resources: [../deploy]`},
	{"history", `history: {enabled: true}`, `
resources: [../deploy]
components: [../deploy/history]`},
	{"delivery", `{history: {enabled: false}, delivery: {enabled: true}}`, `
resources: [../deploy]
components: [../deploy/delivery]`},
	{"flowcontrol", `{history: {enabled: false}, flowcontrol: {enabled: true}}`, `
resources: [../deploy]
components: [../deploy/flowcontrol]`},
	{"certificate", `{history: {enabled: false}, certificate: {enabled: true}}`, `
resources: [../deploy]
components: [../deploy/certificate]`},
	{"apiservice, which needs a certificate", `{history: {enabled: false}, certificate: {enabled: true}, apiservice: {enabled: true}}`, `
resources: [../deploy]
components: [../deploy/certificate, ../deploy/apiservice]`},
	{"monitoring", `{history: {enabled: false}, monitoring: {enabled: true}}`, `
resources: [../deploy]
components: [../deploy/monitoring]`},
	{"everything", everything, `
resources: [../install]
components: [../deploy/delivery, ../deploy/flowcontrol, ../deploy/certificate, ../deploy/apiservice, ../deploy/monitoring]`},

	{"an image by tag", `image: {repository: registry.example/platform/eventd, tag: v1.2.3}`, observing + `
images: [{name: eventd, newName: registry.example/platform/eventd, newTag: v1.2.3}]`},
	{"an image by digest", `
image:
  repository: registry.example:5000/eventd
  tag: v1.2.3
  digest: sha256:` + digest + `
  pullPolicy: Always
  pullSecrets: [{name: registry}]`, observing + `
images: [{name: eventd, newName: "registry.example:5000/eventd", digest: "sha256:` + digest + `"}]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/imagePullPolicy, value: Always}
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: registry}]}`},

	{"replicas and resources", `
replicas: 3
history: {bytes: 256Mi}
goMemLimit: 5GiB
resources:
  requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}
  limits: {memory: 6Gi, ephemeral-storage: 2Gi}
extraArgs: [--kube-api-qps=300, --logging-format=json]`, observing + `
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/replicas, value: 3}
    - {op: replace, path: /spec/template/spec/containers/0/args/9, value: --history-bytes=256Mi}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --kube-api-qps=300}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --logging-format=json}
    - op: replace
      path: /spec/template/spec/containers/0/resources
      value: {requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}, limits: {memory: 6Gi, ephemeral-storage: 2Gi}}
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: eventd, namespace: kube-system}
    spec: {template: {spec: {containers: [{name: eventd, env: [{name: GOMEMLIMIT, value: 5GiB}]}]}}}`},

	{"a limit beside that of the memory", `resources: {limits: {ephemeral-storage: 2Gi}}`, observing + `
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/resources/limits/ephemeral-storage, value: 2Gi}`},

	{"nodes", `
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{operator: Exists}]
affinity: {podAntiAffinity: null, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}
priorityClassName: platform`, observing + `
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/nodeSelector, value: {kubernetes.io/arch: arm64}}
    - {op: replace, path: /spec/template/spec/tolerations, value: [{operator: Exists}]}
    - {op: replace, path: /spec/template/spec/priorityClassName, value: platform}
    - op: replace
      path: /spec/template/spec/affinity
      value: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}`},
	{"neither nodes nor a priority", `{tolerations: [], affinity: null, priorityClassName: "", resources: {requests: null}}`, observing + `
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: remove, path: /spec/template/spec/tolerations}
    - {op: remove, path: /spec/template/spec/affinity}
    - {op: remove, path: /spec/template/spec/priorityClassName}
    - {op: remove, path: /spec/template/spec/containers/0/resources/requests}`},

	{"addresses of the apiserver", `networkPolicy: {apiserverPorts: [443, 16443], apiserverCIDRs: [10.0.0.0/24, "fd00::/64"]}`, observing + `
patches:
- target: {kind: NetworkPolicy}
  patch: |-
    - {op: replace, path: /spec/egress/0/ports/1/port, value: 16443}
    - {op: add, path: /spec/egress/0/to, value: [{ipBlock: {cidr: 10.0.0.0/24}}, {ipBlock: {cidr: "fd00::/64"}}]}`},

	// docs/helm.md has these values.
	{"receivers with files, a volume and a port", receivers, `resources: [../examples/receivers]`},

	{"another Secret, a CA", `{certificate: {enabled: true, secretName: eventd-tls}, apiservice: {enabled: true, caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}}`, `
resources: [../install]
components: [../deploy/certificate, ../deploy/apiservice]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/template/spec/volumes/1/secret/secretName, value: eventd-tls}
- target: {kind: APIService}
  patch: |-
    - {op: remove, path: /metadata/annotations}
    - {op: add, path: /spec/caBundle, value: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`},

	{"apiservice with the CA of eventd", `apiservice: {enabled: true, caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`, `
resources: [../install]
components: [../deploy/apiservice]
patches:
- target: {kind: APIService}
  patch: |-
    - {op: remove, path: /metadata/annotations}
    - {op: add, path: /spec/caBundle, value: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`},
	{"neither a CA nor a certificate", `servingCA: {enabled: false}`, `
resources: [../install]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: test, path: /spec/template/spec/containers/0/args/8, value: --serving-ca=managed}
    - {op: remove, path: /spec/template/spec/containers/0/args/8}
- target: {name: eventd-serving-ca}
  patch: |-
    $patch: delete
    apiVersion: any
    kind: any
    metadata: {name: eventd-serving-ca}`},

	// As docs/deployment.md has it for kube-prometheus-stack.
	{"another Prometheus", `
monitoring:
  enabled: true
  labels: {release: stack}
  prometheus: {serviceAccount: stack-prometheus, namespace: observability}`, `
resources: [../install]
components: [../deploy/monitoring]
patches:
- target: {kind: ServiceMonitor, name: eventd}
  patch: |-
    - {op: add, path: /metadata/labels/release, value: stack}
- target: {kind: PrometheusRule, name: eventd}
  patch: |-
    - {op: add, path: /metadata/labels/release, value: stack}
- target: {kind: ClusterRoleBinding, name: eventd-metrics-reader}
  patch: |-
    - {op: replace, path: /subjects/0/name, value: stack-prometheus}
    - {op: replace, path: /subjects/0/namespace, value: observability}`},
}

// observing is what the chart renders without any values.
const observing = `
resources: [../install]`

const everything = `
delivery: {enabled: true}
flowcontrol: {enabled: true}
certificate: {enabled: true}
apiservice: {enabled: true}
monitoring: {enabled: true}`

// receivers are examples/receivers.
const receivers = `
image: {repository: registry.example/eventd, tag: v0.1.0}
history: {enabled: false}
delivery:
  enabled: true
  clusterName: prod-1
  configuration:
    receivers:
    - name: stream
      from: Oldest
      jetStream:
        url: tls://nats.nats:4222
        subject: kubernetes.events
        credentialsFile: /etc/eventd/nats/eventd.creds
        tls: {caFile: /etc/eventd/nats/ca.crt}
    - name: log
      jsonLines: {}
extraVolumes:
- {name: nats, secret: {secretName: eventd-nats, defaultMode: 0440}}
extraVolumeMounts:
- {name: nats, mountPath: /etc/eventd/nats, readOnly: true}
networkPolicy:
  extraEgress:
  - ports: [{port: 4222, protocol: TCP}]`

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
