# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A Ceph cluster of one machine with its S3 gateway, from the packages of the distribution.

Owns: the three daemons (a monitor, one storage daemon that keeps everything in memory, the gateway), their keys
and their order. Does not own: how a program is started and ended (``processes``), nor when an S3 server is ready
(``servers``). Nothing listens on anything but loopback, and nothing outlives the context but the folder.
"""

from __future__ import annotations

import secrets
import shutil
import uuid
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from gym_objstore.errors import Unavailable, Unusable
from gym_objstore.testing.processes import free_ports, run, start, stop
from gym_objstore.testing.servers import REGION, Server, becomes_ready

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_PACKAGES = "apt-get install --no-install-recommends ceph-mon ceph-osd radosgw"

_CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
keyring = {folder}/keyring
mon_data = {folder}/mon
osd_data = {folder}/osd
rgw_data = {folder}
run_dir = {folder}
admin_socket =
log_file =
log_to_stderr = true
mon_cluster_log_to_file = false
mon_allow_pool_size_one = true
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_crush_chooseleaf_type = 0
osd_objectstore = memstore
memstore_device_bytes = 4294967296
"""

_KEYS = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *"),
    "client.rgw": ("mon", "allow *", "osd", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
}
"""Who there is, and what each may do of which daemon."""


@contextmanager
def ceph(directory: Path, *, users: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """Run a monitor, a storage daemon and the S3 gateway of Ceph while the context is open.

    ``directory`` is an empty folder; what is stored is kept in memory, 4 GiB at most. ``users`` come beside the
    administrator, without any right: secrets by name, which is the access key too. Raises ``Unusable`` without the
    programs, ``Unavailable`` with the end of a log if one of them does not start.
    """
    with ExitStack() as running:
        yield _Cluster(directory.resolve(), running).serve(users)


class _Cluster:
    """The daemons of one folder, stopped in reverse order when ``running`` is closed."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running
        self._monitor_port, self._gateway_port = free_ports(2)
        self._fsid = str(uuid.uuid4())

    def serve(self, users: Mapping[str, str]) -> Server:
        text = _CONFIGURATION.format(fsid=self._fsid, port=self._monitor_port, folder=self._folder)
        (self._folder / "ceph.conf").write_text(text, encoding="utf-8")
        self._make_keys()
        self._start_monitor()
        self._start_storage()
        for name, secret in users.items():
            self._make_user(name, name, secret)
        return self._start_gateway()

    def _make_keys(self) -> None:
        self._run("ceph-authtool", "--create-keyring", "keyring")
        for name, allowed in _KEYS.items():
            rights = [word for pair in zip(allowed[::2], allowed[1::2], strict=True) for word in ("--cap", *pair)]
            self._run("ceph-authtool", "keyring", "--gen-key", "--name", name, *rights)

    def _start_monitor(self) -> None:
        place = ("--addv", "a", f"[v2:127.0.0.1:{self._monitor_port}]")
        self._run("monmaptool", "--create", "--fsid", self._fsid, *place, "monmap")
        (self._folder / "mon").mkdir()
        self._run("ceph-mon", "--mkfs", "-i", "a", *self._known, "--monmap", "monmap")
        self._start("ceph-mon", "-f", "-i", "a", *self._known)

    def _start_storage(self) -> None:
        own = str(uuid.uuid4())
        self._run("ceph", "osd", "new", own, *self._known)
        (self._folder / "osd").mkdir()
        self._run("ceph-osd", "--mkfs", "-i", "0", *self._known, "--osd-uuid", own)
        self._start("ceph-osd", "-f", "-i", "0", *self._known)

    def _make_user(self, name: str, access: str, secret: str) -> None:
        who = ("--uid", name, "--display-name", name, "--access-key", access, "--secret-key", secret)
        self._run("radosgw-admin", "user", "create", *self._known, *who)

    def _start_gateway(self) -> Server:
        access, secret = secrets.token_hex(10), secrets.token_hex(20)
        self._make_user("administrator", access, secret)
        address = f"127.0.0.1:{self._gateway_port}"
        where = ("--rgw_frontends", f"beast endpoint={address}")
        process = self._start("radosgw", "-f", "-n", "client.rgw", *self._known, *where)
        log = self._log("radosgw")
        server = Server("ceph", f"http://{address}", access, secret, REGION, process.pid, log)
        if not becomes_ready(process, server):
            raise Unavailable(f"ceph found its port taken, port={self._gateway_port}", kind="server_not_started")
        return server

    @property
    def _known(self) -> tuple[str, ...]:
        return ("--conf", "ceph.conf")

    def _run(self, name: str, *arguments: str) -> None:
        run([_program(name), *arguments], directory=self._folder, log=self._log(f"{name}-once"))

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [_program(name), *arguments]
        process = start(command, directory=self._folder, log=self._log(name), environment={})
        self._running.callback(stop, process)
        return process

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def _program(name: str) -> str:
    if not (found := shutil.which(name)):
        raise Unusable(f"the program {name} is not installed", kind="missing_extra", hint=_PACKAGES)
    return found
