package chart

// cases are values and what is the same with kustomize. Together they set every value.
var cases = []struct{ name, values, kustomization string }{
	{"defaults", ``, both},
	{"intake alone", `observe: {enabled: false}`, `
resources: [../deploy/intake]
images: [{name: eventd, newTag: v0.1.0}]`},
	{"observe alone", `intake: {enabled: false}`, `
resources: [../deploy/observe]
images: [{name: eventd, newTag: v0.1.0}]`},
	{"flowcontrol", `flowcontrol: {enabled: true}`, both + `
components: [../deploy/flowcontrol]`},
	{"certificate", `certificate: {enabled: true}`, both + `
components: [../deploy/certificate]`},
	{"observe alone, certificate", `{intake: {enabled: false}, certificate: {enabled: true}}`, `
resources: [../deploy/observe]
images: [{name: eventd, newTag: v0.1.0}]
components: [../deploy/certificate]`},
	{"apiservice, which needs a certificate", `{certificate: {enabled: true}, apiservice: {enabled: true}}`, both + `
components: [../deploy/certificate, ../deploy/apiservice, ../deploy/apiservice-observe]`},
	{"monitoring", `monitoring: {enabled: true}`, both + `
components: [../deploy/monitoring]`},
	{"intake alone, monitored", `{observe: {enabled: false}, monitoring: {enabled: true}}`, `
resources: [../deploy/intake]
images: [{name: eventd, newTag: v0.1.0}]
components: [../deploy/monitoring]
patches:
- target: {kind: PrometheusRule}
  patch: |-
    - {op: test, path: /spec/groups/0/rules/1/alert, value: EventdObserveAbsent}
    - {op: remove, path: /spec/groups/0/rules/1}`},
	{"observe alone, monitored", `{intake: {enabled: false}, monitoring: {enabled: true}}`, `
resources: [../deploy/observe]
images: [{name: eventd, newTag: v0.1.0}]
components: [../deploy/monitoring]
patches:
- target: {kind: PrometheusRule}
  patch: |-
    - {op: test, path: /spec/groups/0/rules/0/alert, value: EventdIntakeAbsent}
    - {op: remove, path: /spec/groups/0/rules/0}`},
	{"everything", everything, `
resources: [../deploy]
components: [../deploy/flowcontrol, ../deploy/certificate, ../deploy/apiservice, ../deploy/apiservice-observe, ../deploy/monitoring]`},

	{"an image by tag", `image: {repository: registry.example/platform/eventd, tag: v1.2.3}`, both + `
images: [{name: eventd, newName: registry.example/platform/eventd, newTag: v1.2.3}]`},
	{"an image by digest", `
image:
  repository: registry.example:5000/eventd
  tag: v1.2.3
  digest: sha256:` + digest + `
  pullPolicy: Always
  pullSecrets: [{name: registry}]`, both + `
images: [{name: eventd, newName: "registry.example:5000/eventd", digest: "sha256:` + digest + `"}]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/imagePullPolicy, value: Always}
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: registry}]}`},

	{"replicas and resources", `
intake:
  replicas: 3
  goMemLimit: 5GiB
  resources: &resources
    requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}
    limits: {memory: 6Gi, ephemeral-storage: 2Gi}
  extraArgs: [--kube-api-qps=300, --logging-format=json]
  extraVolumes: [{name: scratch, emptyDir: {}}]
  extraVolumeMounts: [{name: scratch, mountPath: /scratch}]
  extraEgress: [{ports: [{port: 8443, protocol: TCP}]}]
  configuration: {intake: [{name: none, match: "false", drop: true}]}
observe:
  replicas: 3
  historyBytes: 256Mi
  goMemLimit: 5GiB
  resources: *resources
  extraArgs: [--logging-format=json]`, both + `
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/replicas, value: 3}
    - op: replace
      path: /spec/template/spec/containers/0/resources
      value: {requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}, limits: {memory: 6Gi, ephemeral-storage: 2Gi}}
    - {op: test, path: /spec/template/spec/containers/0/env/0/name, value: GOMEMLIMIT}
    - {op: replace, path: /spec/template/spec/containers/0/env/0/value, value: 5GiB}
- target: {kind: Deployment, name: eventd-intake}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --kube-api-qps=300}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --logging-format=json}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: scratch, emptyDir: {}}}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: scratch, mountPath: /scratch}}
- target: {kind: NetworkPolicy, name: eventd-intake}
  patch: |-
    - {op: add, path: /spec/egress/-, value: {ports: [{port: 8443, protocol: TCP}]}}
- patch: |-
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: eventd-configuration, namespace: kube-system}
    data:
      configuration.yaml: |
        {apiVersion: config.eventd.io/v1alpha1, kind: EventdConfiguration, intake: [{name: none, match: "false", drop: true}]}
- target: {kind: Deployment, name: eventd-observe}
  patch: |-
    - {op: test, path: /spec/template/spec/containers/0/args/11, value: --history-bytes=24Mi}
    - {op: replace, path: /spec/template/spec/containers/0/args/11, value: --history-bytes=256Mi}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --logging-format=json}`},

	{"a limit beside that of the memory", `intake: {resources: {limits: {ephemeral-storage: 2Gi}}}`, both + `
patches:
- target: {kind: Deployment, name: eventd-intake}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/resources/limits/ephemeral-storage, value: 2Gi}`},

	{"nodes", `
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}
priorityClassName: platform`, both + `
patches:
- target: {kind: Deployment, name: eventd-.*} # docs/deployment.md: both
  patch: |-
    - {op: add, path: /spec/template/spec/nodeSelector, value: {kubernetes.io/arch: arm64}}
    - {op: replace, path: /spec/template/spec/tolerations, value: [{operator: Exists}]}
    - {op: replace, path: /spec/template/spec/priorityClassName, value: platform}
    - op: add
      path: /spec/template/spec/affinity
      value: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}`},
	{"neither nodes nor a priority", `{tolerations: [], priorityClassName: "", intake: {resources: {requests: null}}, observe: {resources: {requests: null}}}`, both + `
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: remove, path: /spec/template/spec/tolerations}
    - {op: remove, path: /spec/template/spec/priorityClassName}
    - {op: remove, path: /spec/template/spec/containers/0/resources/requests}`},

	{"addresses of the apiserver", `networkPolicy: {apiserverPorts: [443, 16443], apiserverCIDRs: [10.0.0.0/24, "fd00::/64"]}`, both + `
patches:
- target: {kind: NetworkPolicy}
  patch: |-
    - {op: replace, path: /spec/egress/0/ports/1/port, value: 16443}
    - {op: add, path: /spec/egress/0/to, value: [{ipBlock: {cidr: 10.0.0.0/24}}, {ipBlock: {cidr: "fd00::/64"}}]}`},
	{"DNS Pods that listen elsewhere", `networkPolicy: {dnsPorts: [53, 5353]}`, both + `
patches:
- target: {kind: NetworkPolicy, name: eventd-observe}
  patch: |-
    - {op: add, path: /spec/egress/2/ports/2, value: {port: 5353, protocol: UDP}}
    - {op: add, path: /spec/egress/2/ports/3, value: {port: 5353, protocol: TCP}}`},

	// docs/helm.md has these values.
	{"receivers with files, a volume and a port", receivers, `resources: [../examples/receivers]`},

	{"another Secret, a CA", `{certificate: {enabled: true, secretName: eventd-tls}, apiservice: {enabled: true, caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}}`, `
resources: [../deploy]
components: [../deploy/certificate, ../deploy/apiservice, ../deploy/apiservice-observe]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: replace, path: /spec/template/spec/volumes/3/secret/secretName, value: eventd-tls}
- target: {kind: APIService}
  patch: |-
    - {op: remove, path: /metadata/annotations}
    - {op: add, path: /spec/caBundle, value: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`},

	{"apiservice of the intake alone", `{observe: {enabled: false}, certificate: {enabled: true}, apiservice: {enabled: true}}`, `
resources: [../deploy/intake]
images: [{name: eventd, newTag: v0.1.0}]
components: [../deploy/certificate, ../deploy/apiservice]`},
	{"apiservice with the CA of eventd", `apiservice: {enabled: true, caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`, `
resources: [../deploy]
components: [../deploy/apiservice]
patches:
- target: {kind: APIService}
  patch: |-
    - {op: remove, path: /metadata/annotations}
    - {op: add, path: /spec/caBundle, value: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`},
	{"neither a CA nor a certificate", `servingCA: {enabled: false}`, `
resources: [../deploy]
patches:
- target: {kind: Deployment, name: eventd-intake}
  patch: |-
    - {op: test, path: /spec/template/spec/containers/0/args/11, value: --serving-ca=managed}
    - {op: remove, path: /spec/template/spec/containers/0/args/11}
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
resources: [../deploy]
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

// both is what the chart renders without any values.
const both = `
resources: [../deploy]`

const everything = `
flowcontrol: {enabled: true}
certificate: {enabled: true}
apiservice: {enabled: true}
monitoring: {enabled: true}`

// receivers are examples/receivers.
const receivers = `
image: {repository: registry.example/eventd, tag: v0.1.0}
observe:
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
  extraEgress:
  - ports: [{port: 4222, protocol: TCP}]`

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
