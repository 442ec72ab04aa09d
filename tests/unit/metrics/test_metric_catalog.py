"""The catalogue keeps Prometheus' naming rules, and localities are judged as documented."""

import re

import pytest

from connector.metrics import catalog
from connector.metrics.catalog import CATALOG, Locality, MetricSpec, RequestOutcome, locality_of, starting_series
from connector.model import ReplicaChange


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_names_follow_prometheus(spec: MetricSpec):
    assert re.fullmatch(r"kafka_follower(_[a-z]+)+", spec.name)
    assert spec.name.endswith("_total") == (spec.kind == "counter")
    assert spec.family.endswith(spec.unit)
    assert not spec.family.endswith("_total")
    assert spec.help.endswith(".")


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_labels_are_legal_and_bounded(spec: MetricSpec):
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in spec.labels)
    assert not set(spec.labels) & {"offset", "client_id", "pid", "host", "le", "group"}


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_only_histograms_have_buckets(spec: MetricSpec):
    assert bool(spec.buckets) == (spec.kind == "histogram")
    assert list(spec.buckets) == sorted(set(spec.buckets))


def test_catalogue_is_complete_and_without_duplicates():
    declared = [value for value in vars(catalog).values() if isinstance(value, MetricSpec)]
    assert sorted(spec.name for spec in declared) == sorted(spec.name for spec in CATALOG)
    assert len({spec.family for spec in CATALOG}) == len(CATALOG)


@pytest.mark.parametrize(
    ("own_rack", "broker_rack", "locality"),
    [
        pytest.param("az-a", "az-a", "local", id="same"),
        pytest.param("az-a", "az-b", "remote", id="other"),
        pytest.param("az-a", "AZ-A", "remote", id="brokers compare racks as they are"),
        pytest.param(None, "az-a", "unknown", id="we have none"),
        pytest.param("az-a", None, "unknown", id="broker has none"),
        pytest.param("az-a", "", "unknown", id="broker's is empty"),
        pytest.param(None, None, "unknown", id="nobody has one"),
    ],
)
def test_locality(own_rack, broker_rack, locality):
    assert locality_of(own_rack, broker_rack) is Locality(locality)


def test_starting_series_cover_what_can_be_foreseen():
    series = list(starting_series("az-a", ["az-a", "az-b", None, "az-b"], ["orders", "users"]))
    assert len(series) == len(set(series))
    bytes_series = {values for spec, values in series if spec is catalog.FETCH_BYTES}
    assert bytes_series == {
        (topic, rack, locality)
        for topic in ("orders", "users")
        for rack, locality in (("az-a", "local"), ("az-b", "remote"), ("", "unknown"))
    }
    assert {values for spec, values in series if spec is catalog.FETCH_RECORDS} == bytes_series
    requests = {values for spec, values in series if spec is catalog.FETCH_REQUESTS}
    assert len(requests) == 3 * len(RequestOutcome)
    assert {values for spec, values in series if spec is catalog.READ_REPLICA_CHANGES} == {(r,) for r in ReplicaChange}


@pytest.mark.parametrize("own_rack", [None, "az-a"])
def test_starting_series_fit_their_labels(own_rack):
    for spec, values in starting_series(own_rack, [None, "az-a"], ["t"]):
        assert spec.kind == "counter"
        assert len(values) == len(spec.labels)
