"""Which rack wins, and when a migrated job is told that its own is not used."""

import pytest

from connector.rack.resolve import RACK_VARIABLE, RackSource, ResolvedRack, resolve_rack


@pytest.mark.parametrize(
    ("option", "environment", "client_rack", "rack", "source"),
    [
        pytest.param("az-a", "az-b", "az-c", "az-a", RackSource.OPTION, id="option wins over all"),
        pytest.param(
            None, "az-b", "az-c", "az-b", RackSource.ENVIRONMENT, id="environment wins over kafka.client.rack"
        ),
        pytest.param(None, None, "az-c", "az-c", RackSource.CLIENT_RACK, id="migrated job keeps its rack"),
        pytest.param(None, None, None, None, RackSource.NONE, id="nothing set"),
        pytest.param("", "az-b", None, "az-b", RackSource.ENVIRONMENT, id="empty option is unset"),
        pytest.param(" \t", "", " ", None, RackSource.NONE, id="blanks are unset"),
        pytest.param(None, "  az-b\n", None, "az-b", RackSource.ENVIRONMENT, id="surrounding blanks are dropped"),
        pytest.param("zone 1", None, None, "zone 1", RackSource.OPTION, id="inner blanks are kept"),
        pytest.param(None, "", "az-c", "az-c", RackSource.CLIENT_RACK, id="empty environment falls through"),
    ],
)
def test_order_of_sources(option, environment, client_rack, rack, source):
    environ = {} if environment is None else {"KAFKA_CLIENT_RACK": environment}
    resolved = resolve_rack(option, client_rack, environ)
    assert (resolved.rack, resolved.source) == (rack, source)


@pytest.mark.parametrize(
    ("option", "environment", "client_rack"),
    [
        pytest.param(None, "az-b", None, id="kafka.client.rack not given"),
        pytest.param(None, "az-b", " az-b ", id="same rack"),
        pytest.param("az-b", None, "az-b", id="same as the option"),
        pytest.param(None, None, "az-b", id="kafka.client.rack is what is used"),
    ],
)
def test_no_warning_without_a_difference(option, environment, client_rack):
    environ = {} if environment is None else {"KAFKA_CLIENT_RACK": environment}
    assert resolve_rack(option, client_rack, environ).warning is None


@pytest.mark.parametrize(
    ("option", "environ", "origin"),
    [
        pytest.param("az-a", {}, "option rack", id="option"),
        pytest.param(None, {"KAFKA_CLIENT_RACK": "az-a"}, "KAFKA_CLIENT_RACK", id="environment"),
    ],
)
def test_warning_names_both_racks_and_where_ours_came_from(option, environ, origin):
    warning = resolve_rack(option, "az-c", environ).warning
    assert warning is not None
    assert "kafka.client.rack=az-c is not used" in warning
    assert "az-a" in warning
    assert origin in warning
    assert "\n" not in warning


def test_only_the_one_variable_is_read():
    assert RACK_VARIABLE == "KAFKA_CLIENT_RACK"
    assert resolve_rack(None, None, {"KAFKA_RACK": "az-a", "RACK": "az-b"}) == ResolvedRack(None, RackSource.NONE)


def test_source_is_usable_as_a_label():
    assert [str(source) for source in RackSource] == ["option", "environment", "client_rack", "none"]
