"""Which Java is taken, and what a person is told when there is none."""

import os
import sys
from pathlib import Path

import pytest

from streaming_app.local import java
from streaming_app.local.errors import JavaMissing


@pytest.mark.parametrize(
    ("printed", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n" + 'openjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_major_version_of_what_java_prints(printed: str, major: int | None) -> None:
    assert java.java_major_version(printed) == major


def make_java(folder: Path, printed: str, exit_code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{printed}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def only_java_home_and_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "no-package-manager"))
    monkeypatch.setattr(java, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(sys, "platform", "linux")


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    at_home = make_java(tmp_path / "home", 'openjdk version "21.0.1"')
    on_path = make_java(tmp_path / "path", 'openjdk version "17.0.1"')
    found = java.find_java({"JAVA_HOME": str(at_home), "PATH": str(on_path / "bin")})
    assert (found.folder, found.major_version, found.found_by) == (at_home, 21, "JAVA_HOME")
    assert found.executable == str(at_home / "bin" / "java")


def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    at_home = make_java(tmp_path / "home", 'java version "1.8.0_392"')
    on_path = make_java(tmp_path / "path", 'openjdk version "17.0.1"')
    found = java.find_java({"JAVA_HOME": str(at_home), "PATH": str(on_path / "bin")})
    assert (found.folder, found.found_by) == (on_path, "PATH")


def test_a_link_on_the_path_leads_to_the_real_folder(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", 'openjdk version "17.0.1"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert java.find_java({"PATH": str(tmp_path / "bin")}).folder == real


def test_only_old_ones_are_named_with_the_command_to_run(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", 'openjdk version "11.0.2"')
    with pytest.raises(JavaMissing) as caught:
        java.find_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")})
    text = str(caught.value)
    assert text.startswith(f"Java 17 or newer is needed and only Java 11 in {old} was found: run `")
    assert text.count(str(old)) == 1
    assert "set JAVA_HOME" in text


def test_none_at_all_and_a_broken_one_are_the_same(tmp_path: Path) -> None:
    broken = make_java(tmp_path / "broken", "Unable to locate a Java Runtime.", exit_code=1)
    with pytest.raises(JavaMissing, match="Java 17 or newer is needed and none was found: run `"):
        java.find_java({"JAVA_HOME": str(broken), "PATH": str(tmp_path / "nowhere")})


def test_the_command_line_ends_with_1_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.main([]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_macos_is_told_to_use_homebrew() -> None:
    assert java.install_command("darwin") == ("brew", "install", "openjdk@17")


def run_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apt_exit_code: int) -> Path:
    """Make an apt-get that installs a Java (or fails) and a root user; return where the Java will be."""
    programs = tmp_path / "programs"
    programs.mkdir()
    installed = tmp_path / "jvm"
    script = programs / "apt-get"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$1" = install ] || exit 0\n'
        f"[ {apt_exit_code} = 0 ] || exit {apt_exit_code}\n"
        f"/bin/mkdir -p {installed}/17/bin && /bin/ln -s {tmp_path}/template/bin/java {installed}/17/bin/java\n"
    )
    script.chmod(0o755)
    make_java(tmp_path / "template", 'openjdk version "17.0.9"')
    monkeypatch.setattr(java, "SYSTEM_FOLDERS", ((str(installed), "*"),))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(programs))
    return installed / "17"


def test_root_on_debian_gets_a_java_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_install(tmp_path, monkeypatch, apt_exit_code=0)
    assert java.ensure_java().folder == folder
    assert (tmp_path / "calls").read_text().splitlines() == ["update", "install -y default-jre-headless"]


def test_a_failed_installation_says_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_install(tmp_path, monkeypatch, apt_exit_code=100)
    with pytest.raises(JavaMissing, match=r"`apt-get install -y default-jre-headless` failed"):
        java.ensure_java()


def test_without_root_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_install(tmp_path, monkeypatch, apt_exit_code=0)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(JavaMissing, match=r"run `sudo apt-get install -y default-jre-headless`"):
        java.ensure_java()
    assert not (tmp_path / "calls").exists()
