#!/bin/sh
# Print the rules of deploy/prometheus as PrometheusRules for the Prometheus operator: deploy/kubernetes/rules.sh | kubectl apply -f -
set -eu
cd "$(dirname "$0")/../prometheus/rules"
for file in *.yml; do
    printf -- '---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: pointsman-%s\n' "${file%.yml}"
    printf '  labels: {app.kubernetes.io/name: pointsman}\nspec:\n'
    sed 's/^\(.\)/  \1/' "$file"
done
