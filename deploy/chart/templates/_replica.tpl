{{- /*
What the Deployments of both roles have, with the values of one: its name and that of its account, the component, the
rights, the arguments and the memory. The names are those of deploy/, whatever the name of the release: clients, kubectl
eventd, alerts and the rights of a single name rely on them, and roles of a cluster can have one eventd only. Helm
refuses a second release. deploy/ says why each object is as it is.
*/ -}}
{{- define "eventd.labels" -}}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/name: eventd
{{- end }}

{{- define "eventd.replica" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .account }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .account }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
  - apiGroups: ["authentication.k8s.io"]
    resources: ["tokenreviews"]
    verbs: ["create"]
  - apiGroups: ["authorization.k8s.io"]
    resources: ["subjectaccessreviews"]
    verbs: ["create"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .account }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .account }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .namespace | quote }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .account }}-authentication-reader
  namespace: kube-system # the role is there, wherever eventd is
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: extension-apiserver-authentication-reader
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .namespace | quote }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .account }}-leader-election
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
rules:
  - apiGroups: ["coordination.k8s.io"]
    resources: ["leases"]
    resourceNames: [{{ .account | quote }}]
    verbs: ["get", "update", "watch", "create"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .account }}-leader-election
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .account }}-leader-election
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .namespace | quote }}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {{ .account }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .account }}-configuration
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
data:
  {{- toYaml .data | nindent 2 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
spec:
  replicas: {{ .role.replicas }}
  selector:
    matchLabels:
      {{- include "eventd.labels" . | nindent 6 }}
  strategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        {{- include "eventd.labels" . | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: eventd
    spec:
      serviceAccountName: {{ .account }}
      {{- with .Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      automountServiceAccountToken: true
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      terminationGracePeriodSeconds: 40
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: eventd
          {{- if .Values.image.digest }}
          image: {{ .Values.image.repository }}@{{ .Values.image.digest }}
          {{- else }}
          image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
          {{- end }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - --secure-port=10280
            - --leader-elect=true
            - --leader-elect-resource-namespace=$(POD_NAMESPACE)
            - --advertise-address=$(POD_IP)
            - --peer-token-file=/var/run/secrets/eventd/token/token
            - --shutdown-delay-duration=5s
            - --shutdown-grace-period=30s
            - --leader-elect-identity-file=/var/run/eventd/identity
            - --role={{ .component }}
            {{- toYaml .args | nindent 12 }}
            {{- if .Values.certificate.enabled }}
            - --tls-cert-file=/var/run/secrets/eventd/certificate/tls.crt
            - --tls-private-key-file=/var/run/secrets/eventd/certificate/tls.key
            {{- end }}
            {{- with .role.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            - name: GOMEMLIMIT
              value: {{ .role.goMemLimit | default .goMemLimit }}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
            - name: POD_IP
              valueFrom:
                fieldRef:
                  fieldPath: status.podIP
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
          ports:
            - name: https
              containerPort: 10280
              protocol: TCP
          startupProbe:
            httpGet:
              path: /livez
              port: https
              scheme: HTTPS
            periodSeconds: 2
            failureThreshold: 30
            timeoutSeconds: 5
          livenessProbe:
            httpGet:
              path: /livez
              port: https
              scheme: HTTPS
            periodSeconds: 10
            failureThreshold: 6
            timeoutSeconds: 5
          readinessProbe:
            httpGet:
              path: /readyz?exclude=shutdown
              port: https
              scheme: HTTPS
            periodSeconds: 5
            failureThreshold: 2
            timeoutSeconds: 5
          resources:
            {{- with .role.resources.requests }}
            requests:
              {{- toYaml . | nindent 14 }}
            {{- end }}
            limits:
              {{- toYaml (mergeOverwrite (dict "memory" .memory) (.role.resources.limits | default dict)) | nindent 14 }}
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: ["ALL"]
            privileged: false
            readOnlyRootFilesystem: true
          volumeMounts:
            - name: configuration
              mountPath: /etc/eventd/config
              readOnly: true
            - name: peer-token
              mountPath: /var/run/secrets/eventd/token
              readOnly: true
            - name: identity
              mountPath: /var/run/eventd
            {{- if .Values.certificate.enabled }}
            - name: certificate
              mountPath: /var/run/secrets/eventd/certificate
              readOnly: true
            {{- end }}
            {{- with .role.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: configuration
          configMap:
            name: {{ .account }}-configuration
        - name: peer-token
          projected:
            sources:
              - serviceAccountToken:
                  audience: eventd
                  path: token
                  expirationSeconds: 3600
        - name: identity
          emptyDir:
            medium: Memory
            sizeLimit: 1Mi
        {{- if .Values.certificate.enabled }}
        - name: certificate
          secret:
            secretName: {{ .Values.certificate.secretName | quote }}
        {{- end }}
        {{- with .role.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - topologyKey: {{ . }}
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "eventd.labels" $ | nindent 14 }}
          matchLabelKeys:
            - pod-template-hash
        {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "eventd.labels" . | nindent 6 }}
  unhealthyPodEvictionPolicy: AlwaysAllow
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .account }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
spec:
  selector:
    {{- include "eventd.labels" . | nindent 4 }}
  ports:
    - name: https
      port: 443
      targetPort: https
      protocol: TCP
      appProtocol: https
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- include "eventd.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "eventd.labels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports:
        - port: https
          protocol: TCP
  egress:
    # The apiserver.
    - ports:
        {{- range .Values.networkPolicy.apiserverPorts }}
        - port: {{ . }}
          protocol: TCP
        {{- end }}
      {{- with .Values.networkPolicy.apiserverCIDRs }}
      to:
        {{- range . }}
        - ipBlock:
            cidr: {{ . | quote }}
        {{- end }}
      {{- end }}
    # The leader.
    - to:
        - podSelector:
            matchLabels:
              {{- include "eventd.labels" . | nindent 14 }}
      ports:
        - port: https
          protocol: TCP
    {{- with .egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .role.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
