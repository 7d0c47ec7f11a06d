"""Compose, Kubernetes, systemd and Docker files name what exists: files, commands, variables, ports and images."""

import configparser
import re
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtasks.settings import OTHER_VARIABLES, WorkerSettings
from tests.cli.conftest import Run, offline
from tests.database import ROOT, Server

__all__ = ["offline"]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
KUBERNETES: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "deploy/kubernetes/worker.yaml").read_text(encoding="utf-8"))
)
UNIT = (ROOT / "deploy/systemd/pgtasks-worker.service").read_text(encoding="utf-8")
FILES = ("compose.yaml", "deploy/kubernetes/worker.yaml", "deploy/systemd/pgtasks-worker.service", "docs/operations.md")
# Read by KEDA, not by us.
FOREIGN = {"PGTASKS_SCALER_DSN"}


@pytest.mark.parametrize("file", FILES)
def test_every_variable_is_one_of_ours(file: str) -> None:
    """A misspelt one would be a silent default, or an error at three in the morning."""
    known = {setting.metadata["env"] for setting in fields(WorkerSettings)} | set(OTHER_VARIABLES) | FOREIGN
    named = set(re.findall(r"\bPGTASKS_[A-Z_]+\b", (ROOT / file).read_text(encoding="utf-8")))
    assert named <= known


def test_what_compose_mounts_is_there() -> None:
    """Docker would make an empty folder of what is missing."""
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", [])]
    paths = [mount for mount in mounts if mount.startswith(".")]
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_compose_publishes_to_this_machine_alone() -> None:
    """Its passwords are in a public repository."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert not any("ports" in COMPOSE["services"][name] for name in ("postgres", "pgbouncer"))


def test_every_image_has_a_version() -> None:
    """So that tomorrow's is today's."""
    images = [service["image"] for service in COMPOSE["services"].values() if service["image"] != "pgtasks"]
    assert all(re.search(r":v?\d", image) for image in images), images
    assert re.search(r"^FROM python:3\.\d+", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)


def test_there_is_what_was_promised() -> None:
    """PostgreSQL, two workers, PgBouncer, Prometheus with the alerts, Grafana with the dashboard."""
    services = COMPOSE["services"]
    assert services["worker"]["deploy"]["replicas"] == 2
    assert {"postgres", "pgbouncer", "prometheus", "grafana"} <= services.keys()
    assert yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))["rule_files"] == [
        "alerts.yml"
    ]


def test_stops_leave_time_for_the_grace() -> None:
    """A manager that kills earlier loses what the grace is for."""
    grace_s = next(setting.default for setting in fields(WorkerSettings) if setting.name == "shutdown_grace_s")
    assert isinstance(grace_s, float)
    deployment = KUBERNETES[0]["spec"]["template"]["spec"]
    assert deployment["terminationGracePeriodSeconds"] > grace_s
    assert float(COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s")) > grace_s
    found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > grace_s


def test_systemd_never_gives_up_a_worker() -> None:
    """Its start limit would, after a minute without a database: each start fails at once then."""
    sections = configparser.ConfigParser(strict=False, delimiters="=")
    sections.optionxform = str  # type: ignore[assignment, method-assign]  # as the documentation of configparser does
    sections.read_string(UNIT)
    assert sections["Unit"]["StartLimitIntervalSec"] == "0"
    assert sections["Service"]["Restart"] == "always"
    assert int(sections["Service"]["RestartSec"]) >= 5


def test_the_image_holds_what_the_build_needs() -> None:
    """Everything that is copied into the image is let through by .dockerignore, and exists."""
    copied = {
        word
        for line in re.findall(r"^COPY (.+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
        for word in line.split()[:-1]
    }
    let_through = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.pg
def test_compose_makes_roles_that_can_do_their_part(server: Server, offline: Run) -> None:
    """The steps of its services, in their order, with the roles it makes; none of ours is a superuser."""
    address = server.create(migrated=False)
    database = conninfo_to_dict(address)["dbname"]
    made = (ROOT / "deploy/postgres/roles.sql").read_text(encoding="utf-8")
    with psycopg.connect(address, autocommit=True) as superuser:
        superuser.execute(made.replace("DATABASE postgres", f"DATABASE {database}").encode())
        try:
            for name in ("migrate", "grant"):
                service = COMPOSE["services"][name]
                user = urlsplit(service["environment"]["PGTASKS_DSN"]).username
                ran = offline(*service["command"], "--dsn", make_conninfo(address, user=user))
                assert ran.code == 0, ran
            environment = COMPOSE["services"]["worker"]["environment"]
            users = {urlsplit(environment[name]).username for name in ("PGTASKS_DSN", "PGTASKS_LISTEN_DSN")}
            assert users == {COMPOSE["services"]["pgbouncer"]["environment"]["DB_USER"]}
            (worker,) = users
            can = offline("doctor", "--json", "--dsn", make_conninfo(address, user=worker)).json["findings"]
            privileges = next(one for one in can if one["check"] == "privileges")
            assert (privileges["may_enqueue"], privileges["may_work"], privileges["is_owner"]) == (True, True, False)
            assert not any(one["check"] == "visibility" for one in can)
            assert superuser.execute(
                "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'pgtasks_%' AND rolsuper"
            ).fetchone() == (0,)
        finally:
            superuser.execute("DROP OWNED BY pgtasks_worker, pgtasks_owner CASCADE")
            superuser.execute("DROP ROLE pgtasks_worker, pgtasks_owner")
    server.drop(address)


def test_the_services_of_compose_wait_for_their_rights() -> None:
    """Migrate, grant, work; and the file of the roles is run by PostgreSQL."""
    services = COMPOSE["services"]
    assert services["grant"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["worker"]["depends_on"]["grant"]["condition"] == "service_completed_successfully"
    mounts = [mount.split(":") for mount in services["postgres"]["volumes"]]
    assert ["./deploy/postgres/roles.sql", "/docker-entrypoint-initdb.d/roles.sql", "ro"] in mounts


def test_only_the_migration_knows_the_owner() -> None:
    """A worker that is taken over must not be able to change the schema."""
    pod = KUBERNETES[0]["spec"]["template"]["spec"]
    secrets = {
        container["name"]: [source["secretRef"]["name"] for source in container["envFrom"]]
        for container in (*pod["initContainers"], *pod["containers"])
    }
    assert secrets == {"migrate": ["pgtasks-owner"], "grant": ["pgtasks-owner"], "worker": ["pgtasks-worker"]}
    assert [container["args"][0] for container in pod["initContainers"]] == ["migrate", "grant"]


def test_what_the_scaler_asks_for_is_there() -> None:
    """KEDA takes the connection string from the variables of the worker's container."""
    (container,) = KUBERNETES[0]["spec"]["template"]["spec"]["containers"]
    (trigger,) = KUBERNETES[1]["spec"]["triggers"]
    assert trigger["metadata"]["connectionFromEnv"] in {one["name"] for one in container["env"]}


def test_no_container_needs_more_than_the_restricted_standard_gives() -> None:
    """A namespace that enforces it would refuse the pod, also for what only prepares it."""
    pod = KUBERNETES[0]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_what_stays_up_comes_back_after_a_reboot() -> None:
    """Docker starts nothing again that has no such rule; a worker alone would wait for its database for ever."""
    rules = {name: service.get("restart") for name, service in COMPOSE["services"].items()}
    assert rules.pop("migrate") == rules.pop("grant") == "on-failure"
    assert set(rules.values()) == {"unless-stopped"}


def test_the_image_runs_as_a_number() -> None:
    """With runAsNonRoot, as in our manifest, Kubernetes refuses an image whose user is a name."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (user,) = re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE)
    assert user.isdecimal()
    assert int(user) > 0
    assert f"useradd --uid {user} " in dockerfile


def test_the_probes_and_the_scrape_ask_where_the_worker_listens() -> None:
    """One port for all of it."""
    (container,) = KUBERNETES[0]["spec"]["template"]["spec"]["containers"]
    port = next(one["value"] for one in container["env"] if one["name"] == "PGTASKS_METRICS_PORT")
    assert str(container["ports"][0]["containerPort"]) == port
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert COMPOSE["services"]["worker"]["environment"]["PGTASKS_METRICS_PORT"] == port
