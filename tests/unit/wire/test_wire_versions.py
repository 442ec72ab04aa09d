from __future__ import annotations

import pytest

from connector.errors import LocalViolation, UnsupportedApi
from connector.wire.messages import reply_type, request_schema
from connector.wire.versions import SUPPORTED, Api, negotiate

KAFKA_4_4 = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 5), 23: (2, 4), 35: (1, 5)}
KAFKA_2_3 = {0: (0, 7), 1: (0, 11), 2: (0, 5), 3: (0, 8), 18: (0, 2), 23: (0, 3), 35: (0, 1)}
KAFKA_2_2 = {0: (0, 7), 1: (0, 10), 2: (0, 5), 3: (0, 7), 18: (0, 2), 23: (0, 2), 35: (0, 1)}
KAFKA_1_1 = {0: (0, 5), 1: (0, 7), 2: (0, 2), 3: (0, 5), 18: (0, 1)}


@pytest.mark.parametrize(
    ("broker", "api", "cap", "version"),
    [
        pytest.param(KAFKA_4_4, Api.FETCH, None, 16, id="4.4: fetch by id"),
        pytest.param(KAFKA_4_4, Api.FETCH, 12, 12, id="4.4: fetch capped, by name"),
        pytest.param(KAFKA_4_4, Api.FETCH, 10, 10, id="4.4: fetch capped, the leader alone answers (KIP-392)"),
        pytest.param(KAFKA_4_4, Api.FETCH, 99, 16, id="4.4: a cap above what we speak changes nothing"),
        pytest.param(KAFKA_4_4, Api.LIST_OFFSETS, None, 10, id="4.4: list offsets"),
        pytest.param(KAFKA_4_4, Api.METADATA, None, 12, id="4.4: metadata"),
        pytest.param(KAFKA_4_4, Api.API_VERSIONS, None, 3, id="4.4: api versions"),
        pytest.param(KAFKA_4_4, Api.OFFSET_FOR_LEADER_EPOCH, None, 4, id="4.4: ends of leader epochs"),
        pytest.param(KAFKA_4_4, Api.DESCRIBE_LOG_DIRS, None, 4, id="4.4: log dirs"),
        pytest.param(KAFKA_2_3, Api.FETCH, None, 11, id="2.3: fetch with rack"),
        pytest.param(KAFKA_2_3, Api.FETCH, 10, 10, id="2.3: fetch capped"),
        pytest.param(KAFKA_2_3, Api.LIST_OFFSETS, None, 5, id="2.3: list offsets"),
        pytest.param(KAFKA_2_3, Api.METADATA, None, 8, id="2.3: metadata"),
        pytest.param(KAFKA_2_3, Api.OFFSET_FOR_LEADER_EPOCH, None, 3, id="2.3: ends of leader epochs"),
        pytest.param(KAFKA_2_3, Api.DESCRIBE_LOG_DIRS, None, 1, id="2.3: log dirs"),
        pytest.param(KAFKA_1_1, Api.FETCH, 10, 7, id="1.1: the broker is below the cap"),
        pytest.param(KAFKA_1_1, Api.API_VERSIONS, None, 1, id="1.1: api versions"),
        pytest.param({1: (16, 16)}, Api.FETCH, None, 16, id="one version in common, our highest"),
        pytest.param({1: (4, 4)}, Api.FETCH, None, 4, id="one version in common, our lowest"),
        pytest.param({1: (0, 4)}, Api.FETCH, 4, 4, id="one version in common, by cap"),
    ],
)
def test_the_highest_common_version_is_used(broker, api, cap, version):
    assert negotiate(api, broker, cap) == version


@pytest.mark.parametrize(
    ("broker", "cap", "texts"),
    [
        pytest.param({1: (17, 18)}, None, ("FETCH", "17 to 18", "4 to 16"), id="the broker is too new"),
        pytest.param({1: (0, 3)}, None, ("FETCH", "0 to 3", "4 to 16"), id="the broker is too old"),
        pytest.param({1: (11, 18)}, 10, ("11 to 18", "4 to 10", "capped at 10"), id="the cap is below the broker"),
        pytest.param({18: (0, 3)}, None, ("does not offer FETCH", "4 to 16"), id="the broker has no such API"),
        pytest.param({}, None, ("does not offer FETCH",), id="the broker offers nothing"),
        pytest.param({1: (12, 4)}, None, ("12 to 4", "4 to 16"), id="the broker's range is upside down"),
    ],
)
def test_no_common_version_names_both_ranges(broker, cap, texts):
    with pytest.raises(UnsupportedApi) as raised:
        negotiate(Api.FETCH, broker, cap)
    for text in texts:
        assert text in str(raised.value)


def test_ends_of_leader_epochs_are_not_asked_where_that_needs_rights_on_the_cluster():
    with pytest.raises(UnsupportedApi, match="OFFSET_FOR_LEADER_EPOCH: the broker offers 0 to 2"):
        negotiate(Api.OFFSET_FOR_LEADER_EPOCH, KAFKA_2_2)


def test_a_cap_below_all_that_we_speak_is_our_own_mistake():
    with pytest.raises(LocalViolation, match="version 3"):
        negotiate(Api.FETCH, KAFKA_4_4, 3)


@pytest.mark.parametrize("api", Api)
def test_kio_has_every_version_that_we_claim_and_no_other_is_encoded(api):
    lowest, highest = SUPPORTED[api]
    for version in range(lowest, highest + 1):
        assert reply_type(api, version).__version__ == version
        assert reply_type(api, version).__api_key__ == api
        assert request_schema(api, version).__name__.endswith(f".v{version}.request")
    for version in (lowest - 1, highest + 1):
        with pytest.raises(LocalViolation, match=f"{api.name} version {version}"):
            request_schema(api, version)
        with pytest.raises(LocalViolation, match=f"{api.name} version {version}"):
            reply_type(api, version)
