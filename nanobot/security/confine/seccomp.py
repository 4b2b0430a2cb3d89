"""The system call filter: calls that no command needs, or needs only to escape.

Each rule rejects a call, or a call with certain arguments. All other calls are allowed. Only the
lower half of an argument is checked, which is all that the kernel uses of an `int`. Calls of
another architecture (32-bit programs) and calls newer than the list fail as if Linux had none of
them."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nanobot.security.confine import kernel

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""For each machine its number in a filter, and its column below."""

NEWEST = 469
"""Higher numbers were added to Linux after this list, so they are unchecked."""

_TABLE = """
_sysctl 156 - | accept 43 202 | accept4 288 242 | acct 163 89 | add_key 248 217
adjtimex 159 171 | bind 49 200 | bpf 321 280 | chmod 90 - | chown 92 - | chroot 161 51
clock_adjtime 305 266 | clock_settime 227 112 | clone 56 220 | clone3 435 435 | connect 42 203
create_module 174 - | delete_module 176 106 | fanotify_init 300 262 | fchmod 91 52
fchmodat 268 53 | fchmodat2 452 452 | fchown 93 55 | fchownat 260 54 | fcntl 72 25
file_setattr 469 469 | finit_module 313 273 | fremovexattr 199 16 | fsconfig 431 431
fsetxattr 190 7 | fsmount 432 432 | fsopen 430 430 | fspick 433 433 | futimesat 261 -
get_kernel_syms 177 - | init_module 175 105 | inotify_add_watch 254 27 | io_uring_enter 426 426
io_uring_register 427 427 | io_uring_setup 425 425 | ioctl 16 29 | ioperm 173 - | iopl 172 -
ioprio_set 251 30 | kcmp 312 272 | kexec_file_load 320 294 | kexec_load 246 104
keyctl 250 219 | kill 62 129 | lchown 94 - | listen 50 201 | lookup_dcookie 212 18
lremovexattr 198 15 | lsetxattr 189 6 | memfd_create 319 279 | memfd_secret 447 447
migrate_pages 256 238 | modify_ldt 154 - | mount 165 40 | mount_setattr 442 442
move_mount 429 429 | move_pages 279 239 | mq_open 240 180 | mq_unlink 241 181 | msgctl 71 187
msgget 68 186 | msgrcv 70 188 | msgsnd 69 189 | name_to_handle_at 303 264 | nfsservctl 180 42
open_by_handle_at 304 265 | open_tree 428 428 | open_tree_attr 467 467
perf_event_open 298 241 | personality 135 92 | pidfd_getfd 438 438 | pidfd_send_signal 424 424
pivot_root 155 41 | prlimit64 302 261 | process_madvise 440 440 | process_mrelease 448 448
process_vm_readv 310 270 | process_vm_writev 311 271 | ptrace 101 117 | query_module 178 -
quotactl 179 60 | quotactl_fd 443 443 | reboot 169 142 | removexattr 197 14
removexattrat 466 466 | request_key 249 218 | rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240 | sched_setaffinity 203 122 | sched_setattr 314 274
sched_setparam 142 118 | sched_setscheduler 144 119 | semctl 66 191 | semget 64 190
semop 65 193 | semtimedop 220 192 | sendmmsg 307 269 | sendmsg 46 211 | setdomainname 171 162
sethostname 170 161 | setns 308 268 | setpriority 141 140 | setsid 112 157
settimeofday 164 170 | setsockopt 54 208 | setxattr 188 5 | setxattrat 463 463 | shmat 30 196
shmctl 31 195 | shmget 29 194 | socket 41 198 | socketpair 53 199 | swapoff 168 225
swapon 167 224 | sysfs 139 - | syslog 103 116 | tgkill 234 131 | tkill 200 130 | truncate 76 45
umount2 166 39 | unshare 272 97 | uselib 134 - | userfaultfd 323 282 | ustat 136 -
utime 132 - | utimensat 280 88 | utimes 235 - | vhangup 153 58
"""
"""Restricted system calls: name, number on x86_64, number on aarch64."""

_NUMBERS = {
    name: numbers
    for name, *numbers in map(str.split, _TABLE.strip().replace("|", "\n").splitlines())
}

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
    """Reject `name` with `error`. With `values`, only if `argument & mask` is among them, or with
    `unless` if it is not. `where` adds a condition: an argument and its value. With error 0 the
    call seems to succeed."""

    name: str
    error: int = errno.EPERM
    argument: int = 0
    values: tuple[int, ...] = ()
    unless: bool = False
    mask: int = _WHOLE
    where: tuple[int, int] | None = None


def deny(names: str, error: int = errno.EPERM) -> list[Rule]:
    return [Rule(name, error) for name in names.split()]


def deny_unless(
    name: str, argument: int, *values: int, mask: int = _WHOLE, error: int = errno.EPERM
) -> Rule:
    return Rule(name, error, argument, values, True, mask)


COMMON = (
    # Administration.
    *deny("acct adjtimex chroot clock_adjtime clock_settime create_module delete_module fsconfig"),
    *deny("finit_module fsmount fsopen fspick get_kernel_syms init_module ioperm iopl kexec_load"),
    *deny("kexec_file_load lookup_dcookie mount mount_setattr move_mount nfsservctl open_tree"),
    *deny("open_tree_attr pivot_root query_module quotactl quotactl_fd reboot setdomainname"),
    *deny("sethostname settimeofday swapoff swapon syslog _sysctl sysfs umount2 uselib ustat"),
    *deny("vhangup modify_ldt"),
    # Other processes, and keys, which namespaces do not separate.
    *deny("add_key kcmp keyctl request_key pidfd_getfd process_madvise process_mrelease"),
    *deny("process_vm_readv process_vm_writev ptrace name_to_handle_at open_by_handle_at"),
    *deny("migrate_pages move_pages perf_event_open bpf userfaultfd fanotify_init lookup_dcookie"),
    # New namespaces, in which a command would have privileges again. A filter can't read clone3's
    # arguments, so it seems missing, and programs fall back to clone.
    *deny("setns unshare"),
    Rule("clone", errno.EPERM, 0, (0,), True, _NEW_NAMESPACES),
    *deny("clone3", errno.ENOSYS),
    # Memory that can't be counted: unnamed files, System V segments and queues, and larger
    # buffers (the call seems to succeed).
    *deny("memfd_create memfd_secret", errno.ENOSYS),
    *deny("shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl"),
    Rule("setsockopt", 0, 2, _BUFFER_SIZES, where=(1, _SOCKET_LEVEL)),
    # io_uring does the same as other calls, unseen by filters.
    *deny("io_uring_enter io_uring_register io_uring_setup", errno.ENOSYS),
    # Sockets outside network namespaces: vsock, and Unix sockets, through which a command could
    # reach programs by socket files in its workspace, including new ones. Connected pairs are
    # allowed, except datagram ones, which could send elsewhere.
    deny_unless("socket", 0, _INET, _INET6, _NETLINK, error=errno.EAFNOSUPPORT),
    deny_unless("socketpair", 0, _UNIX, error=errno.EAFNOSUPPORT),
    deny_unless("socketpair", 1, _STREAM, _SEQPACKET, mask=0xF, error=errno.EAFNOSUPPORT),
    Rule("ioctl", errno.EPERM, 1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)),
    Rule("fcntl", errno.EPERM, 1, (_SET_LEASE,)),
    deny_unless("personality", 0, 0, _WHOLE),
)  # fmt: skip

ALONE = (
    # No sockets except connected pairs.
    *deny("socket", errno.EACCES),
    *deny("connect bind listen accept accept4"),
    # Landlock does not check these, and they work on any file with a known name.
    *deny("chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat"),
    *deny("utimensat file_setattr truncate inotify_add_watch"),
    *deny("setxattr lsetxattr fsetxattr setxattrat", errno.ENOTSUP),
    *deny("removexattr lremovexattr fremovexattr removexattrat", errno.ENOTSUP),
    deny_unless("ioctl", 1, *_HARMLESS_IOCTLS, error=errno.ENOTTY),
    deny_unless("fcntl", 1, *_HARMLESS_FCNTLS),
    # Shared by processes of one user.
    *deny("mq_open mq_unlink", errno.ENOSYS),
    # Sockets in transit inside others would not be counted.
    *deny("sendmsg sendmmsg"),
    # Other processes of the same user. A command that stays in its session can be killed.
    *deny("setsid sched_setattr sched_setscheduler sched_setparam"),
    deny_unless("prlimit64", 0, 0),
    deny_unless("sched_setaffinity", 0, 0),
    deny_unless("setpriority", 0, 0),
    deny_unless("setpriority", 1, 0),
    deny_unless("ioprio_set", 0, 1),
    deny_unless("ioprio_set", 1, 0),
)
"""Additional rules without namespaces."""

WITHOUT_SIGNAL_SCOPE = (
    deny_unless("kill", 0, 0),
    *deny("tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal"),
)
"""Additional rules if Landlock does not restrict signals."""


def program(rules: Iterable[Rule], machine: str) -> bytes:
    """Return the filter in the kernel's format. Raise `KeyError` for an unknown machine."""
    name, column = MACHINES[machine]
    refuse = _RETURN, 0, 0, _ERROR | errno.ENOSYS
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, name),
        refuse,
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, NEWEST),  # all x32 numbers are higher
        refuse,
    ]
    for rule in rules:
        number = _NUMBERS[rule.name][column]
        if number != "-":
            code += compile_rule(rule, int(number))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in code)


def compile_rule(rule: Rule, number: int) -> Sequence[tuple[int, int, int, int]]:
    refuse = _RETURN, 0, 0, _ERROR | rule.error
    if not rule.values:
        return [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, 1, number), refuse]
    count = len(rule.values)
    steps = [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_AND, 0, 0, rule.mask)]
    for index, value in enumerate(rule.values):
        beyond = count - 1 - index + 1  # skip one instruction after the last of these
        steps.append((_EQUAL, beyond, 0, value & _WHOLE))
    steps += [refuse] if rule.unless else [(_JUMP, 0, 0, 1), refuse]
    if rule.where:
        argument, value = rule.where
        steps = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_EQUAL, 0, len(steps), value), *steps]
    return [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, len(steps), number), *steps]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(rules: Iterable[Rule]) -> None:
    """Filter the system calls of this process and its children from now on."""
    code = program(rules, os.uname().machine)
    with_filter = 2
    passed = _Program(len(code) // 8, code)
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    kernel.prctl(kernel.SECCOMP, with_filter, ctypes.addressof(passed))
