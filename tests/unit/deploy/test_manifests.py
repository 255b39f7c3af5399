"""Manifests and compose file: valid by their schemas, of one mind with each other and the settings, able to start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from router.access.identity import require_loopback
from router.settings import Settings, load_settings
from tests.support.promql import rules
from tests.support.registry import registered
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

KUBERNETES = ROOT / "deploy" / "kubernetes"
NGINX = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
OLDEST, NEWEST = "1.30.0", "1.37.0"
"""Sidecars and preStop sleep are on by default since the oldest."""


def documents() -> list[dict[str, Any]]:
    return [each for path in sorted(KUBERNETES.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]


def one(kind: str, name: str = "pointsman") -> dict[str, Any]:
    (found,) = (each for each in documents() if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("document", documents(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_is_valid(document: dict[str, Any], version: str) -> None:
    if document["kind"] == "ServiceMonitor":
        assert document["apiVersion"] == "monitoring.coreos.com/v1"
        assert set(document["spec"]) == {"jobLabel", "selector", "endpoints"}
        return
    kubernetes_validate.validate(document, version, strict=True)


def test_a_mistake_in_a_manifest_is_found() -> None:
    wrong = one("PodDisruptionBudget") | {"spec": {"maxUnavailable": 1, "selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("Deployment")["spec"]["template"]["spec"]
    return spec


def listened() -> dict[str, set[str]]:
    """Ports of nginx.conf: those it listens on, and those of the gateway behind it."""
    return {
        "listens": set(re.findall(r"listen (\d+)", NGINX)),
        "behind": set(re.findall(r"127\.0\.0\.1:(\d+);", NGINX)),
    }


def settings_from(monkeypatch: pytest.MonkeyPatch, given: Mapping[str, str]) -> Settings:
    for name in os.environ:
        if name.startswith("POINTSMAN_"):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def can_start(settings: Settings) -> None:
    """Addresses that the server takes, at the ports where the proxy looks for it."""
    require_loopback(settings.server.host)
    require_loopback(settings.http.host)
    ports = {settings.server.port, settings.server.metrics_port, settings.http.port}
    assert {str(port) for port in ports} == listened()["behind"]
    assert settings.database.url is not None


def test_the_pod_gets_settings_with_which_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = one("ConfigMap")["data"] | one("Secret")["stringData"]
    settings = settings_from(monkeypatch, given)
    can_start(settings)
    sleep = pod()["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod()["terminationGracePeriodSeconds"] >= sleep + settings.server.grace_seconds + 10


def test_the_pod_s_proxy_is_the_one_that_the_tests_try() -> None:
    assert one("ConfigMap", "pointsman-proxy")["data"]["nginx.conf"] == NGINX
    (proxy,) = pod()["initContainers"]
    assert proxy["restartPolicy"] == "Always"
    assert {str(port["containerPort"]) for port in proxy["ports"]} == listened()["listens"]
    assert "keys.conf" in one("Secret", "pointsman-keys")["stringData"]


def test_probes_services_and_policies_name_ports_that_there_are() -> None:
    (gateway,) = pod()["containers"]
    ports = {port["name"]: port["containerPort"] for port in pod()["initContainers"][0]["ports"]}
    assert gateway["readinessProbe"]["grpc"]["port"] == gateway["startupProbe"]["grpc"]["port"] == ports["grpc"]
    assert gateway["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": ports["http"]}
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    for name in ("pointsman", "pointsman-headless"):
        service = one("Service", name)["spec"]
        assert service["selector"].items() <= labels.items()
        for port in service["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    allowed = {port["port"] for rule in one("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == set(ports.values())
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        spec = one(kind)["spec"]
        assert spec.get("podSelector", spec.get("selector"))["matchLabels"].items() <= labels.items()


def test_exactly_one_service_is_scraped_under_the_name_that_rules_go_by() -> None:
    monitor = one("ServiceMonitor")["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    services = [each for each in documents() if each["kind"] == "Service"]
    chosen = [each for each in services if wanted <= each["metadata"]["labels"].items()]
    assert [each["metadata"]["name"] for each in chosen] == ["pointsman"]
    assert chosen[0]["metadata"]["labels"][monitor["jobLabel"]] == "pointsman"
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in chosen[0]["spec"]["ports"]}


def test_the_operator_gets_the_same_rules() -> None:
    printed = subprocess.run(
        [str(KUBERNETES / "rules.sh")], capture_output=True, text=True, timeout=20, check=True
    ).stdout
    made = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(printed)}
    files = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
    assert made == {f"pointsman-{path.stem}": yaml.safe_load(path.read_text()) for path in files}


def test_the_autoscaler_goes_by_figures_that_there_are() -> None:
    adapter = yaml.safe_load(one("ConfigMap", "prometheus-adapter")["data"]["config.yaml"])["rules"]
    known = {*registered(), *(rule.name for rule in rules())}
    for rule in adapter:
        assert set(re.findall(r"pointsman[:_][a-z0-9_:]+", rule["seriesQuery"])) <= known
    spec = one("HorizontalPodAutoscaler")["spec"]
    wanted = [metric["pods"]["metric"]["name"] for metric in spec["metrics"]]
    assert wanted == [rule["name"]["as"] for rule in adapter]
    assert spec["scaleTargetRef"]["name"] == one("Deployment")["metadata"]["name"]
    assert "replicas" not in one("Deployment")["spec"]


def test_containers_have_no_rights_and_write_nowhere_but_in_their_volumes() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    for container in [*pod()["containers"], *pod()["initContainers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        assert container["resources"]["limits"]["memory"]
    volumes = {volume["name"] for volume in pod()["volumes"]}
    mounts = {
        each["name"] for part in ("containers", "initContainers") for c in pod()[part] for each in c["volumeMounts"]
    }
    assert volumes == mounts


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    return read


@pytest.mark.skipif(sys.platform != "linux", reason="docker-compose comes with the development set on Linux alone")
def test_compose_s_own_parser_takes_the_compose_file() -> None:
    program = Path(sys.executable).parent / "docker-compose"
    command = [str(program), "--file", str(ROOT / "deploy" / "compose.yaml"), "--profile", "*", "config", "--quiet"]
    secrets = {"POSTGRES_PASSWORD": "p", "GRAFANA_PASSWORD": "g"}
    done = subprocess.run(command, env=os.environ | secrets, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    bare = {name: value for name, value in os.environ.items() if name not in secrets}
    without = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=60, check=False)
    assert without.returncode != 0
    assert "POSTGRES_PASSWORD" in without.stderr


def test_compose_s_gateway_starts_with_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    services = compose()["services"]
    given = {name: re.sub(r"\$\{\w+:-\}", "", value) for name, value in services["gateway"]["environment"].items()}
    can_start(settings_from(monkeypatch, given))
    assert services["proxy"]["network_mode"] == "service:gateway"
    assert int(services["gateway"]["stop_grace_period"].removesuffix("s")) > load_settings().server.grace_seconds


def test_compose_publishes_on_this_machine_alone_and_mounts_files_that_there_are() -> None:
    for name, service in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / "deploy" / source).exists(), f"{name}: {source}"
            else:
                assert source in compose()["volumes"]
        if name != "database":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
        tag = service["image"].partition(":")[2]
        assert name == "gateway" or (tag and tag != "latest")


def test_grafana_s_provisioning_points_at_the_dashboard_and_prometheus() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "pointsman.yaml").read_text())["providers"]
    mounts = dict(volume.split(":")[:2] for volume in compose()["services"]["grafana"]["volumes"])
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
