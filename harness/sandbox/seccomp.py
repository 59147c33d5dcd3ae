"""The seccomp filter for bubblewrap: system calls that are forbidden in the sandbox.

Namespaces already isolate files, processes and networks. The filter closes the remaining gaps: memory that no process
limit counts, address families that no network namespace isolates (vsock reaches the host of a virtual machine), and
parts of the kernel that programs do not need and that have been used to escape from sandboxes."""

from __future__ import annotations

import errno
import platform
import struct

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16

_NEW_NAMESPACES = 0x7E020000
"""All CLONE_NEW* flags of `clone`."""

_FAMILIES = (1, 2, 10, 16)
"""Unix, IPv4, IPv6 and netlink sockets: those of the standard library, all isolated by the network namespace."""

_X32 = 0x40000000

_CALLS: dict[str, tuple[int, int]] = {
    # memory that no limit counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
    # other processes' memory and files
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "open_by_handle_at": (304, 265),
    # key rings are not isolated by namespaces
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # new namespaces give new rights and so access to the whole kernel
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    # large and new parts of the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "kexec_load": (246, 104),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
"""Calls that fail with EPERM: numbers on x86-64 and on arm64."""

_MACHINES = {
    "x86_64": (0, 0xC000003E, {"clone": 56, "clone3": 435, "socket": 41}),
    "aarch64": (1, 0xC00000B7, {"clone": 220, "clone3": 435, "socket": 198}),
}


def filter_program(machine: str | None = None) -> bytes:
    """The filter program for an architecture, in the format of `bwrap --seccomp`; empty for an unknown architecture.

    Args:
        machine: Architecture as in `platform.machine()`; defaults to this machine's.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    column, arch, special = known
    lines = [
        _step(_LOAD, _ARCH_AT),
        _step(_EQUAL, arch, 1, 0),
        _step(_RETURN, _KILL),  # another calling convention has other call numbers
        _step(_LOAD, _NUMBER_AT),
    ]
    if column == 0:
        lines += [_step(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for numbers in _CALLS.values():
        lines += [_step(_EQUAL, numbers[column], 0, 1), _refuse(errno.EPERM)]
    # its flags are in memory, which a filter cannot read; the C library falls back to clone
    lines += [_step(_EQUAL, special["clone3"], 0, 1), _refuse(errno.ENOSYS)]
    lines += [
        _step(_EQUAL, special["clone"], 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    lines += [_step(_EQUAL, special["socket"], 0, len(_FAMILIES) + 2), _step(_LOAD, _FIRST_ARGUMENT_AT)]
    lines += [_step(_EQUAL, family, len(_FAMILIES) - at, 0) for at, family in enumerate(_FAMILIES)]
    lines += [_refuse(errno.EAFNOSUPPORT), _step(_RETURN, _ALLOW)]
    return b"".join(lines)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)
