"""The filter of system calls: what no command needs, or needs only to get out.

Each rule refuses a call, or a call with certain arguments; everything else is allowed. Only the
lower half of an argument is looked at, which is all that the kernel takes of an `int`. Calls of
another machine (32-bit programs) and calls newer than the list fail as if Linux had none of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nanobot.security.confine import kernel
from nanobot.security.confine.syscalls import MACHINES, NEWEST, NUMBERS

_LOAD, _AND, _EQUAL, _ABOVE, _RETURN, _JUMP = 0x20, 0x54, 0x15, 0x25, 0x06, 0x05
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_WHOLE = 0xFFFFFFFF

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5
_NEW_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag."""
_SOCKET_LEVEL, _BUFFER_SIZES = 1, (7, 8, 32, 33)
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_SET_LEASE = 1024

_HARMLESS_IOCTLS = (
    0x5401, 0x540F, 0x5411, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A,  # terminals, pipes
    0x80086601, 0xC020660B, 0x2, 0x40049409, 0x4020940D,  # flags as they are, extents, clones
)  # fmt: skip
_HARMLESS_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1025, 1030, 1031, 1032, 1033, 1034)


class Rule(NamedTuple):
    """Refuse `name` with `error`; with `values` only where `argument & mask` is one of them, or
    with `unless` where it is none of them; with `where`, an argument and its value, only there.
    The error 0 lets a call seem to have worked."""

    name: str
    error: int = errno.EPERM
    argument: int = 0
    values: tuple[int, ...] = ()
    unless: bool = False
    mask: int = _WHOLE
    where: tuple[int, int] | None = None


def _all(names: str, error: int = errno.EPERM) -> list[Rule]:
    return [Rule(name, error) for name in names.split()]


def _unless(
    name: str, argument: int, *values: int, mask: int = _WHOLE, error: int = errno.EPERM
) -> Rule:
    return Rule(name, error, argument, values, True, mask)


COMMON = (
    # What belongs to whoever runs the machine.
    *_all("acct adjtimex chroot clock_adjtime clock_settime create_module delete_module fsconfig"),
    *_all("finit_module fsmount fsopen fspick get_kernel_syms init_module ioperm iopl kexec_load"),
    *_all("kexec_file_load lookup_dcookie mount mount_setattr move_mount nfsservctl open_tree"),
    *_all("open_tree_attr pivot_root query_module quotactl quotactl_fd reboot setdomainname"),
    *_all("sethostname settimeofday swapoff swapon syslog _sysctl sysfs umount2 uselib ustat"),
    *_all("vhangup modify_ldt"),
    # Other processes, and keys, which no namespace holds apart.
    *_all("add_key kcmp keyctl request_key pidfd_getfd process_madvise process_mrelease"),
    *_all("process_vm_readv process_vm_writev ptrace name_to_handle_at open_by_handle_at"),
    *_all("migrate_pages move_pages perf_event_open bpf userfaultfd fanotify_init lookup_dcookie"),
    # New namespaces, where a command would have powers again. Not to be told from its arguments,
    # clone3 is said not to exist; everybody then falls back to clone.
    *_all("setns unshare"),
    Rule("clone", errno.EPERM, 0, (0,), True, _NEW_NAMESPACES),
    *_all("clone3", errno.ENOSYS),
    # Memory that nobody could count: files without a name, System V segments and queues, and
    # buffers that are larger than usual (it is as if that were done).
    *_all("memfd_create memfd_secret", errno.ENOSYS),
    *_all("shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl"),
    Rule("setsockopt", 0, 2, _BUFFER_SIZES, where=(1, _SOCKET_LEVEL)),
    # It does what other calls do, and no filter sees it.
    *_all("io_uring_enter io_uring_register io_uring_setup", errno.ENOSYS),
    # Machines' sockets (vsock) and others that no network namespace holds.
    _unless("socket", 0, _UNIX, _INET, _INET6, _NETLINK, error=errno.EAFNOSUPPORT),
    Rule("ioctl", errno.EPERM, 1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)),
    Rule("fcntl", errno.EPERM, 1, (_SET_LEASE,)),
    _unless("personality", 0, 0, _WHOLE),
)  # fmt: skip

ALONE = (
    # No sockets but pairs that are joined for good: a datagram one could be sent elsewhere.
    *_all("socket", errno.EACCES),
    *_all("connect bind listen accept accept4"),
    _unless("socketpair", 0, _UNIX, error=errno.EACCES),
    _unless("socketpair", 1, _STREAM, _SEQPACKET, mask=0xF, error=errno.EACCES),
    # Landlock does not look at these, and they work on any file whose name is known.
    *_all("chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat"),
    *_all("utimensat file_setattr truncate inotify_add_watch"),
    *_all("setxattr lsetxattr fsetxattr setxattrat", errno.ENOTSUP),
    *_all("removexattr lremovexattr fremovexattr removexattrat", errno.ENOTSUP),
    _unless("ioctl", 1, *_HARMLESS_IOCTLS, error=errno.ENOTTY),
    _unless("fcntl", 1, *_HARMLESS_FCNTLS),
    # What processes of one user share.
    *_all("mq_open mq_unlink", errno.ENOSYS),
    # Sockets could be sent away in others, and not be found.
    *_all("sendmsg sendmmsg"),
    # Other processes of the same user. To stay in its session keeps a command within reach.
    *_all("setsid sched_setattr sched_setscheduler sched_setparam"),
    _unless("prlimit64", 0, 0),
    _unless("sched_setaffinity", 0, 0),
    _unless("setpriority", 0, 0),
    _unless("setpriority", 1, 0),
    _unless("ioprio_set", 0, 1),
    _unless("ioprio_set", 1, 0),
)
"""On top of that, where no namespace holds a command."""

WITHOUT_SIGNAL_SCOPE = (
    _unless("kill", 0, 0),
    *_all("tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal"),
)
"""On top of that, where Landlock does not keep signals in."""


def program(rules: Iterable[Rule], machine: str) -> bytes:
    """The filter as the kernel reads it. Raises `KeyError` for a machine that is not known."""
    name, column = MACHINES[machine]
    refuse = _RETURN, 0, 0, _ERROR | errno.ENOSYS
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, name),
        refuse,
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, NEWEST),  # the numbers of x32 are all above
        refuse,
    ]
    for rule in rules:
        number = NUMBERS[rule.name][column]
        if number is not None:
            code += _block(rule, number)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in code)


def _block(rule: Rule, number: int) -> Sequence[tuple[int, int, int, int]]:
    refuse = _RETURN, 0, 0, _ERROR | rule.error
    if not rule.values:
        return [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, 1, number), refuse]
    count = len(rule.values)
    steps = [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_AND, 0, 0, rule.mask)]
    for index, value in enumerate(rule.values):
        beyond = count - 1 - index + 1  # one instruction lies between the last of these and there
        steps.append((_EQUAL, beyond, 0, value & _WHOLE))
    steps += [refuse] if rule.unless else [(_JUMP, 0, 0, 1), refuse]
    if rule.where:
        argument, value = rule.where
        steps = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_EQUAL, 0, len(steps), value), *steps]
    return [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, len(steps), number), *steps]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(rules: Iterable[Rule]) -> None:
    """Filter this process's system calls from now on, and those of all that it starts."""
    code = program(rules, os.uname().machine)
    with_filter = 2
    passed = _Program(len(code) // 8, code)
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    kernel.prctl(kernel.SECCOMP, with_filter, ctypes.addressof(passed))
