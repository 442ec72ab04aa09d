from __future__ import annotations

from kio.schema.errors import ErrorCode

from connector.wire import error_codes
from connector.wire.error_codes import error_name, is_known, is_retriable


def test_names_and_retriability_are_kafkas():
    for code in ErrorCode:
        assert error_name(int(code)) == code.name.upper()
        assert is_retriable(int(code)) == code.retriable, code


def test_exactly_kios_codes_are_known():
    assert {code for code in range(-(2**15), 2**15) if is_known(code)} == {int(code) for code in ErrorCode}


def test_every_constant_has_the_value_of_its_name():
    constants = [name for name in error_codes.__all__ if name.isupper()]
    assert "OFFSET_OUT_OF_RANGE" in constants
    for name in constants:
        code = getattr(error_codes, name)
        assert type(code) is int
        assert error_name(code) == name


def test_an_unknown_code_has_a_name_and_is_not_retriable():
    assert error_name(12345) == "UNKNOWN_CODE_12345"
    assert not is_retriable(12345)
