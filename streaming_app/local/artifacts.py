"""Fetch Java archives from a Maven repository once, into the user's cache folder.

The downloader is Apache Ivy, whose jar ships inside pyspark: no Maven, no Gradle and no archive unpacking. A set of
jars appears in the cache under its final name only when it is complete; two processes never fetch the same set at once.

Environment variables:

- ``KAFKA_FOLLOWER_KAFKA_VERSION``: the brokers' version (`streaming_app.local.kafka_version`);
- ``KAFKA_FOLLOWER_MAVEN_REPO``: root of the repository to use in place of Maven Central (a company's mirror);
- ``KAFKA_FOLLOWER_IVY_SETTINGS``: an Ivy settings file of your own (mirrors with a password, several repositories),
  such as the one you give Spark as ``spark.jars.ivySettings``;
- ``XDG_CACHE_HOME``: the user's cache folder, ``~/.cache`` by default.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as Xml

from streaming_app.local.errors import LocalClusterError
from streaming_app.local.java import find_java
from streaming_app.local.kafka_version import VERSION_VARIABLE, kafka_artifacts, kafka_version
from streaming_app.local.supervise import run_supervised

__all__ = ["cache_folder", "fetch", "kafka_jars", "oracle_jars", "spark_home"]

DOWNLOAD_TIMEOUT_S: Final = 1800.0
COMPLETE_MARKER: Final = "complete.json"
IVY_PROBLEM_SIGNS: Final = (
    "UNRESOLVED DEPENDENCY:",
    "unresolved dependency:",
    "Host ",
    "Server access",
    "FAILED",
    "exception",
)
SPARK_KAFKA_ORACLE: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return where this project keeps what it downloads; the folder may not exist yet."""
    values = os.environ if environ is None else environ
    return Path(values.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-kafka-follower"


def spark_home() -> Path:
    """Return Spark's own folder: the installed pyspark package's, else SPARK_HOME."""
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    raise LocalClusterError("pyspark is not installed: run `pip install pyspark`, or set SPARK_HOME.")


def fetch(
    set_name: str,
    coordinates: Sequence[str],
    *,
    transitive: bool = True,
    exclude: Sequence[str] = (),
) -> list[Path]:
    """Return the jars of some Maven coordinates, from the cache or else from the repository.

    Parameters
    ----------
    set_name
        What messages and the cache call this set of jars, such as ``kafka-4.4.0``.
    coordinates
        Each ``group:artifact:version``.
    transitive
        With everything that they need at run time, by their POMs.
    exclude
        ``group:artifact`` of dependencies to leave out.

    Raises
    ------
    LocalClusterError
        The repository can't be reached or lacks something; the end of Ivy's output is attached.
    """
    fingerprint = hashlib.sha256(repr((sorted(coordinates), transitive, sorted(exclude))).encode()).hexdigest()[:12]
    folder = cache_folder() / "jars" / f"{set_name}-{fingerprint}"
    jars = complete_jars(folder)
    if jars:
        return jars
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock"):
        jars = complete_jars(folder)
        if jars:
            return jars
        for abandoned in folder.parent.glob(f".{folder.name}-*"):  # a process that was killed while it held the lock
            shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
            download = Path(name)
            write_ivy_file(download / "ivy.xml", coordinates, transitive=transitive, exclude=exclude)
            run_ivy(set_name, download)
            finished = download / "jars"
            sizes = {jar.name: jar.stat().st_size for jar in finished.iterdir()}
            (finished / COMPLETE_MARKER).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            finished.rename(folder)
    return complete_jars(folder)


def kafka_jars() -> list[Path]:
    """Return the jars that run a Kafka broker of the wanted version, and what makes it log."""
    version = kafka_version()
    return fetch(
        f"kafka-{version}",
        kafka_artifacts(version),
        exclude=("org.apache.kafka:kafka-tools-api",),  # of the console tools; 4.4's POM names it, nobody published it
    )


def oracle_jars() -> list[Path]:
    """Return the jars of Spark's own ``kafka`` source, which tests compare ours with (never needed at run time)."""
    return fetch("spark-kafka-oracle", SPARK_KAFKA_ORACLE, transitive=False)


def complete_jars(folder: Path) -> list[Path]:
    """Return the jars of a cached set, or an empty list when any is missing or cut short."""
    try:
        sizes = json.loads((folder / COMPLETE_MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    jars = [folder / name for name in sorted(sizes)]
    is_complete = all(jar.is_file() and jar.stat().st_size == sizes[jar.name] for jar in jars)
    return jars if is_complete else []


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel frees it at any kind of death."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_ivy_file(path: Path, coordinates: Sequence[str], *, transitive: bool, exclude: Sequence[str]) -> None:
    """Write what to fetch as an Ivy module file."""
    module = Xml.Element("ivy-module", version="2.0")
    Xml.SubElement(module, "info", organisation="local", module="wanted")
    Xml.SubElement(Xml.SubElement(module, "configurations"), "conf", name="default")
    dependencies = Xml.SubElement(module, "dependencies")
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        wanted = "master,runtime(*),compile(*)" if transitive else "master"
        Xml.SubElement(dependencies, "dependency", org=group, name=artifact, rev=version, conf=f"default->{wanted}")
    for pair in exclude:
        group, artifact = pair.split(":")
        Xml.SubElement(dependencies, "exclude", org=group, module=artifact)
    Xml.ElementTree(module).write(path, encoding="utf-8", xml_declaration=True)


def run_ivy(set_name: str, download: Path) -> None:
    """Resolve ``ivy.xml`` of the folder and put the jars into its ``jars`` folder."""
    ivy_jars = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not ivy_jars:
        raise LocalClusterError(f"{spark_home()} has no jars/ivy-*.jar: reinstall pyspark.")
    mirror = os.environ.get("KAFKA_FOLLOWER_MAVEN_REPO")
    own_settings = os.environ.get("KAFKA_FOLLOWER_IVY_SETTINGS")
    settings = own_settings or str(Path(__file__).with_name("ivysettings.xml"))
    command = [
        find_java().executable,
        *proxy_options(urllib.request.getproxies()),
        f"-Dkafka.follower.resolver={'mirror' if mirror else 'central'}",
        *([f"-Dkafka.follower.maven.root={mirror.rstrip('/')}/"] if mirror else []),
        f"-Dkafka.follower.download.folder={download / 'ivy'}",
        *("-jar", str(ivy_jars[-1]), "-settings", settings, "-ivy", str(download / "ivy.xml")),
        *("-retrieve", f"{download}/jars/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"),
    ]
    log = download / "ivy.log"
    code = run_supervised(command, name=f"The download of {set_name}", log_path=log, timeout_s=DOWNLOAD_TIMEOUT_S)
    if code != 0:
        source = f"the settings of {own_settings}" if own_settings else mirror or "Maven Central"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        problems = [line.strip() for line in lines if any(sign in line for sign in IVY_PROBLEM_SIGNS)]
        raise LocalClusterError(
            f"The jars of {set_name} can't be fetched from {source} (needed once; they are kept in {cache_folder()}): "
            "check the network or its proxy, or set KAFKA_FOLLOWER_MAVEN_REPO to a mirror that you can reach"
            + f"{kafka_advice() if set_name.startswith('kafka-') else ''}.",
            "\n".join(dict.fromkeys(problems or lines[-15:])),
        )


def kafka_advice() -> str:
    """Return what else may be wrong, or else help, when a broker's jars can't be fetched."""
    if os.environ.get(VERSION_VARIABLE):
        return f", or set {VERSION_VARIABLE} to a version that can be had there"
    return ", or set KAFKA_HOME to an installed Apache Kafka 4"


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """Return Java's options for the proxies that the environment names; Java doesn't read ``https_proxy`` itself."""
    options = []
    for scheme in ("http", "https"):
        address = urlsplit(proxies.get(scheme, ""))
        if address.hostname:
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    if options and proxies.get("no"):
        hosts = [host.strip() for host in proxies["no"].split(",") if host.strip()]
        patterns = "|".join(f"*{host}" if host.startswith(".") else host for host in hosts)
        options.append(f"-Dhttp.nonProxyHosts={patterns}")
    return options


def main() -> int:
    """Fetch everything ahead of its first use: Kafka's jars, and the tests' with ``--tests``."""
    try:
        found = kafka_jars() + (oracle_jars() if "--tests" in sys.argv[1:] else [])
    except LocalClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(found)} jars in {cache_folder()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
