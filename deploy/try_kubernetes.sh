#!/usr/bin/env bash
# `make kubernetes`: the Helm chart on a real API server. Builds etcd and kube-apiserver from their Go modules into
# .cache/kubernetes (a quarter of an hour on two cores, once), starts them on loopback, and applies, installs, upgrades, rolls
# back and uninstalls. No kubelet: pods are taken, and never started. Needs Go 1.24, kubectl and openssl.
set -euo pipefail
cd "$(dirname "$0")/.."
bash deploy/setup_helm.sh
KUBERNETES=v1.34.1 STAGING=v0.34.1 ETCD=v3.6.15
CHART=$PWD/deploy/helm/tripletd HELM=$PWD/.cache/helm/helm BUILD=$PWD/.cache/kubernetes
GO=$(command -v go || echo /usr/local/go/bin/go)
mkdir -p "$BUILD"

if ! [ -x "$BUILD/kube-apiserver-$KUBERNETES" ]; then
  cd "$BUILD"
  printf 'module tripletd/kubernetes\n\ngo 1.24.0\n' > go.mod
  "$GO" mod download "k8s.io/kubernetes@$KUBERNETES"
  listed=$("$GO" list -m -f '{{.GoMod}}' "k8s.io/kubernetes@$KUBERNETES")
  # What the release takes from its own tree is published as modules of another version.
  {
    printf 'require (\n\tk8s.io/kubernetes %s\n\tgo.etcd.io/etcd/server/v3 %s\n)\nreplace (\n' "$KUBERNETES" "$ETCD"
    sed -nE "s#^\s*(k8s.io/[a-z-]+) => ./staging.*#\t\1 => \1 $STAGING#p" "$listed"
    echo ')'
  } >> go.mod
  printf '//go:build tools\n\npackage tools\n\nimport (\n\t_ "go.etcd.io/etcd/server/v3"\n\t_ "k8s.io/kubernetes/cmd/kube-apiserver"\n)\n' > tools.go
  "$GO" mod tidy
  "$GO" build -trimpath -ldflags "-s -w" -o "etcd-$ETCD" go.etcd.io/etcd/server/v3
  said=k8s.io/component-base/version
  "$GO" build -trimpath -ldflags "-s -w -X $said.gitVersion=$KUBERNETES -X $said.gitMajor=1 -X $said.gitMinor=34" \
    -o "kube-apiserver-$KUBERNETES" k8s.io/kubernetes/cmd/kube-apiserver
fi

RUN=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$RUN"' EXIT
cd "$RUN"
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
CLIENTS=$(free_port) PEERS=$(free_port) PORT=$(free_port)
TOKEN=$(openssl rand -hex 16)
openssl genrsa -out sa.key 2048 2>/dev/null
openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
umask 077
echo "$TOKEN,admin,1,system:masters" > tokens.csv
"$BUILD/etcd-$ETCD" --data-dir etcd --listen-client-urls "http://127.0.0.1:$CLIENTS" \
  --advertise-client-urls "http://127.0.0.1:$CLIENTS" --listen-peer-urls "http://127.0.0.1:$PEERS" > etcd.log 2>&1 &
"$BUILD/kube-apiserver-$KUBERNETES" --etcd-servers "http://127.0.0.1:$CLIENTS" --bind-address 127.0.0.1 \
  --advertise-address 127.0.0.1 --secure-port "$PORT" --cert-dir certs --service-account-key-file sa.pub \
  --service-account-signing-key-file sa.key --service-account-issuer https://kubernetes.default.svc \
  --token-auth-file tokens.csv --authorization-mode RBAC --service-cluster-ip-range 10.96.0.0/16 \
  --disable-admission-plugins ServiceAccount > api.log 2>&1 &
cat > kubeconfig <<EOF
apiVersion: v1
kind: Config
clusters: [{name: trial, cluster: {server: "https://127.0.0.1:$PORT", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: "$TOKEN"}}]
contexts: [{name: trial, context: {cluster: trial, user: admin}}]
current-context: trial
EOF
export KUBECONFIG=$RUN/kubeconfig
for _ in $(seq 90); do kubectl get --raw /readyz >/dev/null 2>&1 && ready=1 && break; sleep 1; done
[ "${ready:-}" ] || { tail -n 20 api.log >&2; exit 1; }

shards() { kubectl -n models get statefulset shop-tripletd-learn -o 'jsonpath={.spec.replicas}'; }
VALUES=(--set storage.path=s3://models/shop --set follow.enabled=true --set secrets.tls.existingSecret=tls
  --set secrets.tokens.existingSecret=tokens --set secrets.catalog.data.password=trial)
kubectl create namespace models
kubectl label namespace models pod-security.kubernetes.io/enforce=restricted
"$HELM" template shop "$CHART" -n models --kube-version "${KUBERNETES#v}" "${VALUES[@]}" \
  | kubectl apply --server-side --dry-run=server -f -
"$HELM" install shop "$CHART" -n models "${VALUES[@]}" > /dev/null
[ "$(shards)" = 2 ]
"$HELM" upgrade shop "$CHART" -n models "${VALUES[@]}" --set shards.count=4 --set image.tag=next > /dev/null
[ "$(shards)" = 4 ]
"$HELM" rollback shop 1 -n models
[ "$(shards)" = 2 ]
# Each pod against the standard that the namespace enforces; no controller is there to make them.
kubectl -n models get statefulset,deployment,job -o json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["items"]:
    spec = one["spec"]["template"]["spec"]
    for claim in one["spec"].get("volumeClaimTemplates", ()):
        spec["volumes"].append({"name": claim["metadata"]["name"], "emptyDir": {}})
    name = one["metadata"]["name"] + "-pod"
    print("---\n" + json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
' | kubectl -n models create --dry-run=server -f -
"$HELM" uninstall shop -n models
kubectl -n models get statefulset,deployment,service -o name | { ! grep .; }
echo "applied, installed, upgraded, rolled back, uninstalled"
