#!/bin/sh
# Installs eventd, from the image of this version, and workloads that fail in the usual ways, in
# the cluster of KUBECONFIG.
#
#   hack/cluster/demo.sh VERSION
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d "$here/../../.cache/demo-XXXXXX") # kustomize wants relative paths of folders
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
cat >"$work/kustomization.yaml" <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../deploy]
components: [../../deploy/flowcontrol]
images: [{name: eventd, newName: eventd.local/eventd, newTag: "$1"}]
END
echo '• installing eventd'
kubectl apply -k "$work" >/dev/null
for deployment in eventd-intake eventd-observe; do
	kubectl -n kube-system rollout status --timeout=120s "deployment/$deployment"
done
kubectl apply -f "$here/workloads.yaml" >/dev/null
cat <<END
• workloads fail in the namespace trouble. In a shell with the variables below, the plugin shows what happens, such as

  kubectl eventd tail -n trouble
  kubectl eventd timeline deploy/broken --owned -n trouble
  kubectl eventd status
END
