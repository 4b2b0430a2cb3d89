# mypy: disable-error-code="func-returns-value"
"""Attempts of an attacker who can run any command. It runs inside, with only the standard library.

Sandboxes break: a successful attempt must do no harm outside the test's folder.

`python attacker.py JSON` prints the names of the successful attempts. JSON describes the outside:
`outside` (a folder), `workspace`, `process`, `namespace` (of processes), `port`, `abstract`."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import termios
from collections.abc import Callable
from types import SimpleNamespace

SEIZE = 0x4206
"""Trace without stopping."""

libc = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "perf_event_open": (298, 241),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "setns": (308, 268),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}


def main(target: SimpleNamespace) -> None:
    crossed = []
    for group in (files, protected, repositories, people, processes, sockets, kernel):
        for name, attempt in group(target).items():
            try:
                done = attempt()
            except (OSError, subprocess.SubprocessError, ValueError):
                continue
            if done is not False:
                crossed.append(f"{group.__name__}: {name}")
    write(f"{target.workspace}/work/allowed")
    print(json.dumps(crossed))


Attempts = dict[str, Callable[[], object]]


def files(at: SimpleNamespace) -> Attempts:
    secret, inside = f"{at.outside}/secret", f"{at.workspace}/work"
    up = "../" * 40
    return {
        "read": lambda: read(secret),
        "read by traversal": lambda: read(f"{inside}/{up}{secret}"),
        "read through a link": lambda: through_link(f"{inside}/a", secret, read),
        "write through a link": lambda: through_link(f"{inside}/b", secret, write),
        "read through a linked folder": lambda: through_link(
            f"{inside}/c", at.outside, lambda path: read(f"{path}/secret")
        ),
        "read through /proc": lambda: read(f"/proc/self/root{secret}"),
        "read through init's root": lambda: read(f"/proc/1/root{secret}"),
        "read through another's folder": lambda: read(f"/proc/{at.process}/cwd/{secret}"),
        "read through a descriptor": descriptors,
        "hard link": lambda: os.link(secret, f"{inside}/link"),
        "move away": lambda: os.rename(secret, f"{inside}/moved"),
        "move in": lambda: move_in(f"{inside}/d", f"{at.outside}/moved"),
        "list": lambda: os.listdir(at.outside),
        "enter and list": lambda: enter(at.outside),
        "watch": lambda: watch(at.outside),
        "write": lambda: write(secret),
        "make": lambda: write(f"{at.outside}/new"),
        "make a folder": lambda: os.mkdir(f"{at.outside}/folder"),
        "remove": lambda: os.unlink(secret),
        "truncate": lambda: os.truncate(secret, 0),
        "mode": lambda: os.chmod(secret, 0o666),
        "times": lambda: os.utime(secret, (1, 1)),
        "attribute": lambda: os.setxattr(secret, "user.a", b"b"),
        "run": lambda: subprocess.run([f"{at.outside}/program"], check=True),
        "other people's names": lambda: read("/etc/shadow"),
        "system program": lambda: os.open("/usr/bin/env", os.O_WRONLY),
        "system program's mode": lambda: mode_by_descriptor("/usr/bin/env"),
        "certificates": lambda: os.open("/etc/ssl/certs/ca-certificates.crt", os.O_WRONLY),
    }


def protected(at: SimpleNamespace) -> Attempts:
    top, folder, inside = f"{at.workspace}/SOUL.md", f"{at.workspace}/memory", "work"
    file, missing = f"{folder}/MEMORY.md", f"{at.workspace}/skills"
    other = f"{at.workspace}/{inside}/other"
    return {
        "write": lambda: write(top),
        "append": lambda: os.open(top, os.O_WRONLY | os.O_APPEND),
        "truncate": lambda: os.truncate(top, 0),
        "remove": lambda: os.unlink(top),
        "rename": lambda: os.rename(top, other),
        "replace": lambda: replace(other, top),
        "replace by a link": lambda: (os.unlink(top), os.symlink("work/x", top)),
        "through a hard link": lambda: (os.link(top, other + "2"), write(other + "2")),
        "through a link": lambda: through_link(other + "3", top, write),
        "through /proc": lambda: write("/proc/self/cwd/SOUL.md"),
        "mode": lambda: os.chmod(top, 0o666),
        "times": lambda: os.utime(top, (1, 1)),
        "mode by descriptor": lambda: mode_by_descriptor(top),
        "lease": lambda: fcntl.fcntl(os.open(top, os.O_RDONLY), 1024, fcntl.F_RDLCK),
        "write in a folder": lambda: write(file),
        "make in a folder": lambda: write(f"{folder}/new.md"),
        "move a folder": lambda: os.rename(folder, f"{at.workspace}/work/memory"),
        "move a folder above": lambda: os.rename(
            f"{at.workspace}/deep", f"{at.workspace}/work/deep"
        ),
        "write deep down": lambda: write(f"{at.workspace}/deep/er/kept"),
        "make what was missing": lambda: write(f"{missing}/evil/SKILL.md"),
        "make a missing folder": lambda: os.mkdir(f"{missing}/evil"),
        "replace a missing one": lambda: (os.rmdir(missing), os.symlink("work", missing)),
    }


def repositories(at: SimpleNamespace) -> Attempts:
    project, inside = f"{at.workspace}/project", f"{at.workspace}/work"
    return {
        "configure": lambda: write(f"{project}/.git/config"),
        "add a hook": lambda: write(f"{project}/.git/hooks/post-commit"),
        "move the project": lambda: os.rename(project, f"{inside}/project"),
        "move it": lambda: os.rename(f"{project}/.git", f"{project}/git"),
        "replace it": lambda: replace(f"{inside}/git", f"{project}/.git"),
        "configure a submodule": lambda: write(f"{project}/sub/.git"),
        "replace by git": lambda: subprocess.run(
            ["git", "-C", project, "config", "core.pager", "evil"], check=True, capture_output=True
        ),
    }


def people(at: SimpleNamespace) -> Attempts:
    folder = f"{at.workspace}/people"
    return {
        "plant": lambda: write(f"{folder}/telegram_7/MEMORY.md"),
        "make": lambda: os.mkdir(f"{folder}/telegram_8"),
        "move": lambda: os.rename(folder, f"{at.workspace}/work/people"),
    }


def processes(at: SimpleNamespace) -> Attempts:
    def other() -> int:
        if str(os.stat("/proc/self/ns/pid").st_ino) != at.namespace:
            raise ProcessLookupError  # another process has this number here
        return int(at.process)

    return {
        "environment": lambda: read(f"/proc/{other()}/environ"),
        "memory": lambda: os.open(f"/proc/{other()}/mem", os.O_RDONLY),
        "root": lambda: os.listdir(f"/proc/{other()}/root"),
        "descriptors": lambda: os.listdir(f"/proc/{other()}/fd"),
        "descriptor link": lambda: os.readlink(f"/proc/{other()}/fd/0"),
        "signal": lambda: os.kill(other(), 0),
        "signal its group": lambda: os.killpg(os.getpgid(other()), 0),
        "trace": lambda: call("ptrace", SEIZE, other(), 0, 0),
        "read memory": lambda: call("process_vm_readv", other(), 0, 0, 0, 0, 0),
        "limits": lambda: limits(other()),
        "priority": lambda: os.setpriority(
            os.PRIO_PROCESS, other(), os.getpriority(os.PRIO_PROCESS, other())
        ),
        "scheduling": lambda: os.sched_setaffinity(other(), os.sched_getaffinity(other())),
        "write to init": lambda: os.open("/proc/1/mem", os.O_RDWR),
        "trace init": lambda: call("ptrace", SEIZE, 1, 0, 0),
        "init's environment": lambda: b"NANOBOT" in whole("/proc/1/environ"),
        "shared memory": lambda: at.namespace_is_shared and share_memory(),
    }


def sockets(at: SimpleNamespace) -> Attempts:
    return {
        "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", at.port)),
        "loopback, IPv6": lambda: connect(socket.AF_INET6, ("::ffff:127.0.0.1", at.port)),
        "path": lambda: connect(socket.AF_UNIX, f"{at.outside}/socket"),
        "path, from elsewhere": lambda: connect(socket.AF_UNIX, f"/proc/1/root{at.outside}/socket"),
        "abstract": lambda: connect(socket.AF_UNIX, f"\0{at.abstract}"),
        "datagram to a path": lambda: datagram(f"{at.outside}/datagrams"),
        "datagram by a pair": lambda: by_pair(f"{at.outside}/datagrams"),
        "the internet": lambda: connect(socket.AF_INET, ("192.0.2.1", 80)),
        "the host of this machine": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
        "crypto": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
        "packets": lambda: socket.socket(17, socket.SOCK_RAW),
    }


def kernel(at: SimpleNamespace) -> Attempts:
    new_user = 0x10000000
    return {
        "settings": lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "own powers": lambda: os.open("/proc/self/uid_map", os.O_WRONLY) and False,
        "magic keys": lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY),
        "cgroups": lambda: make_and_remove("/sys/fs/cgroup/nanobot-test"),
        "become root": lambda: os.geteuid() != 0 and os.setuid(0),
        "new user namespace": lambda: call("unshare", new_user),
        "new user namespace, cloned": lambda: clone(new_user | 17),
        "new mounts": lambda: call("unshare", 0x20000),
        "another's namespace": lambda: call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
        "mount": lambda: call("mount", b"none", b"/nowhere", b"none", 0, 0),
        "unmount": lambda: call("umount2", f"{at.workspace}/memory".encode(), 0),
        "root folder": lambda: os.chroot("/"),
        "device": lambda: os.mknod(f"{at.workspace}/work/disk", 0o60600, os.makedev(0, 0)),
        "rings": lambda: call("io_uring_setup", 1, ctypes.c_char_p(bytes(120))),
        "programs": lambda: call("bpf", 5, 0, 0),
        "events": lambda: call("perf_event_open", ctypes.c_char_p(bytes(128)), 0, -1, -1, 0),
        "keys": lambda: call("keyctl", 0, -2, 0, 0, 0),
        "new key": lambda: call("add_key", b"user", b"evil", b"x", 1, -2),
        "page faults": lambda: call("userfaultfd", 0),
        "type into a terminal": type_into_terminal,
    }


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def whole(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def write(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"changed\n")


def through_link(link: str, target: str, use: Callable[[str], None]) -> None:
    os.symlink(target, link)
    use(link)


def replace(other: str, path: str) -> None:
    write(other)
    os.replace(other, path)


def move_in(path: str, outside: str) -> None:
    write(path)
    os.rename(path, outside)


def enter(folder: str) -> None:
    before = os.getcwd()
    os.chdir(folder)
    os.listdir(".")
    os.chdir(before)


def descriptors() -> bool:
    """Check whether an inherited descriptor leads anywhere."""
    return any(_is_folder(number) for number in range(3, 256))


def _is_folder(number: int) -> bool:
    try:
        os.fchdir(number)
    except OSError:
        return False
    return True


def mode_by_descriptor(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o7777)


def watch(folder: str) -> bool:
    return int(libc.inotify_add_watch(libc.inotify_init(), folder.encode(), 0x100)) >= 0


def make_and_remove(folder: str) -> None:
    os.mkdir(folder)
    os.rmdir(folder)


def share_memory() -> bool:
    made = libc.shmget(0, 4096, 0o600)
    return bool(made >= 0 and libc.shmctl(made, 0, None) == 0)


def limits(process: int) -> None:
    import resource

    resource.prlimit(process, resource.RLIMIT_NOFILE)


def connect(family: int, address: tuple[str, int] | str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(0.2)
        connection.connect(address)


def datagram(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", path)


def by_pair(path: str) -> None:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect(path)


def clone(flags: int) -> bool:
    """Check whether a process with these flags can be created. It ends at once."""
    made = libc.syscall(ctypes.c_long(NUMBERS["clone"][COLUMN]), ctypes.c_ulong(flags), 0, 0, 0, 0)
    if made == 0:
        os._exit(0)
    return bool(made > 0)


def type_into_terminal() -> None:
    with open("/dev/tty", "rb") as terminal:
        fcntl.ioctl(terminal, termios.TIOCSTI, b"x")


def call(name: str, *arguments: object) -> bool:
    """Check whether a system call passes the filter. Bad arguments mean that it did."""
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    if libc.syscall(ctypes.c_long(NUMBERS[name][COLUMN]), *passed) >= 0:
        return True
    return ctypes.get_errno() not in {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ESRCH}


if __name__ == "__main__":
    main(SimpleNamespace(**json.loads(sys.argv[1])))
