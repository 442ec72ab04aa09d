"""Find a Java that runs Kafka and Spark, and install one where that is allowed.

Needs the standard library only, so that it works before a virtual environment exists:

    python3 -m streaming_app.local.java            # tell which Java is used
    python3 -m streaming_app.local.java --install  # install one when there is none
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming_app.local.errors import JavaMissing

__all__ = ["MINIMUM_VERSION", "QUICK_START_OPTIONS", "JavaHome", "ensure_java", "find_java", "java_major_version"]

MINIMUM_VERSION: Final = 17
"""Kafka 4 and Spark 4 both need it."""
QUICK_START_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""For a JVM that lives for seconds, or works little: no threads that optimize what never runs often enough."""
PROBE_TIMEOUT_S: Final = 30
SYSTEM_FOLDERS: Final = (
    ("/opt/homebrew/opt", "openjdk*/libexec/openjdk.jdk/Contents/Home"),
    ("/usr/local/opt", "openjdk*/libexec/openjdk.jdk/Contents/Home"),
    ("/usr/lib/jvm", "*"),
)
"""Where systems install Java: Homebrew on both kinds of Mac, Linux distributions."""
VERSION_PATTERN: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True)  # without slots: it must load under the Python of the system, however old
class JavaHome:
    """An installed Java: its folder, how that was found, the version text it prints, and the number that counts."""

    folder: Path
    found_by: str
    version_text: str
    major_version: int

    @property
    def executable(self) -> str:
        """Path of the ``java`` program."""
        return str(self.folder / "bin" / "java")


def java_major_version(text: str) -> int | None:
    """Return the major version that ``java -version`` prints (8 for "1.8.0_392"), or None when there is none."""
    match = VERSION_PATTERN.search(text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def candidate_folders(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield where a Java may be, most wanted first: JAVA_HOME, PATH, then where systems install it."""
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path and (on_path, sys.platform) != ("/usr/bin/java", "darwin"):  # macOS puts a program there that is no Java
        yield "PATH", Path(on_path).resolve().parent.parent
    if sys.platform == "darwin":
        chooser = subprocess.run(
            ["/usr/libexec/java_home", "-v", f"{MINIMUM_VERSION}+"], capture_output=True, text=True, check=False
        )
        if chooser.returncode == 0:
            yield "java_home", Path(chooser.stdout.strip())
    for base, pattern in SYSTEM_FOLDERS:
        for folder in sorted(Path(base).glob(pattern), reverse=True):
            yield base, folder


def probe(folder: Path, found_by: str) -> JavaHome | None:
    """Run ``java -version`` in a folder and return what it is; None when it is no working Java."""
    try:
        done = subprocess.run(
            [str(folder / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stderr + done.stdout
    version = java_major_version(text)
    return None if done.returncode != 0 or version is None else JavaHome(folder, found_by, text, version)


def find_java(environ: Mapping[str, str] | None = None) -> JavaHome:
    """Return the first Java that is new enough.

    Parameters
    ----------
    environ
        Where JAVA_HOME and PATH are read; None means this process's own.

    Raises
    ------
    JavaMissing
        There is none; the text names what was found and the command that installs one.
    """
    too_old: list[str] = []
    for found_by, folder in candidate_folders(os.environ if environ is None else environ):
        java = probe(folder, found_by)
        if java is None:
            continue
        if java.major_version >= MINIMUM_VERSION:
            return java
        too_old.append(f"Java {java.major_version} in {folder}")
    found = f"only {', '.join(dict.fromkeys(too_old))} was found" if too_old else "none was found"
    raise JavaMissing(
        f"Java {MINIMUM_VERSION} or newer is needed and {found}: "
        f"run `{' '.join(install_command())}`, or set JAVA_HOME to one that is installed."
    )


def install_command(platform: str = sys.platform) -> Sequence[str]:
    """Return the one command that installs a Java on this system, for a person to run."""
    if platform == "darwin":
        return ("brew", "install", "openjdk@17")
    managers = {
        "apt-get": ("sudo", "apt-get", "install", "-y", debian_package()),
        "dnf": ("sudo", "dnf", "install", "-y", "java-21-openjdk-headless"),
        "pacman": ("sudo", "pacman", "-S", "--noconfirm", "jre17-openjdk-headless"),
        "apk": ("sudo", "apk", "add", "openjdk17-jre-headless"),
        "zypper": ("sudo", "zypper", "install", "-y", "java-17-openjdk-headless"),
    }
    for manager, command in managers.items():
        if shutil.which(manager):
            return command
    return managers["apt-get"]


def debian_package() -> str:
    """Return the name of Debian's or Ubuntu's oldest Java package that is new enough and can be had."""
    for version in (17, 21, 25):
        name = f"openjdk-{version}-jre-headless"
        if shutil.which("apt-cache"):
            policy = subprocess.run(["apt-cache", "policy", name], capture_output=True, text=True, check=False)
            if re.search(r"Candidate: \d", policy.stdout):
                return name
    return "default-jre-headless"


def ensure_java() -> JavaHome:
    """Return a Java that is new enough, installing one where no password is needed for that.

    That is: as root with apt-get, or with Homebrew on macOS. Elsewhere it raises `JavaMissing` with the command for a
    person.
    """
    try:
        return find_java()
    except JavaMissing:
        may_install = (
            shutil.which("brew") if sys.platform == "darwin" else shutil.which("apt-get") and os.geteuid() == 0
        )
        if not may_install:
            raise
    if sys.platform != "darwin":
        subprocess.run(["apt-get", "update"], check=False)
    command = [word for word in install_command() if word != "sudo"]
    done = subprocess.run(command, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, check=False)
    if done.returncode != 0:
        raise JavaMissing(f"`{' '.join(command)}` failed (see above): install Java {MINIMUM_VERSION} or newer by hand.")
    return find_java()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print which Java is used; return 1 with a sentence when there is none."""
    parser = argparse.ArgumentParser(prog="python3 -m streaming_app.local.java", description="Find Java 17 or newer.")
    parser.add_argument("--install", action="store_true", help="install one when there is none")
    options = parser.parse_args(arguments)
    try:
        java = ensure_java() if options.install else find_java()
    except JavaMissing as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Java {java.major_version} in {java.folder} (found by {java.found_by})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
