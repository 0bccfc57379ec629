"""System calls that end a contained program: processes, signals, sockets, mounts, keys, modules.

Namespaces and limits hold without them; they make the kernel's surface smaller. Those above 400
have one number on all machines (`include/uapi/asm-generic/unistd.h` of Linux).
"""

from __future__ import annotations

from typing import NamedTuple

_COMMON = (
    *(424, 425, 426, 427),  # pidfd_send_signal, io_uring_setup, _enter, _register
    *(428, 429, 430, 431, 432, 433),  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick
    *(434, 435, 438, 442),  # pidfd_open, clone3, pidfd_getfd, mount_setattr
)


class RefusedCalls(NamedTuple):
    """What a machine's filter is made of."""

    architecture: int  # AUDIT_ARCH_*
    numbers: tuple[int, ...]


REFUSED_CALLS = {
    "x86_64": RefusedCalls(
        0xC000003E,
        (
            *(41, 53),  # socket, socketpair
            *(56, 57, 58),  # clone, fork, vfork
            *(62, 129, 200, 234, 297),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo
            *(29, 30, 31, 64, 68, 240),  # shmget, shmat, shmctl, semget, msgget, mq_open
            *(101, 310, 311, 135),  # ptrace, process_vm_readv, process_vm_writev, personality
            *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(298, 300, 303, 304),  # perf_event_open, fanotify_init, name_to_, open_by_handle_at
            *(319, 321, 323),  # memfd_create, bpf, userfaultfd
            *(175, 176, 246, 313, 320),  # init_, delete_module, kexec_load, finit_, kexec_file_
            *(103, 154, 163, 167, 169, 172, 173, 179),  # syslog, modify_ldt, acct, swapon, reboot
            *_COMMON,
        ),
    ),
    "aarch64": RefusedCalls(
        0xC00000B7,
        (
            *(198, 199),  # socket, socketpair
            220,  # clone
            *(129, 130, 131, 138, 240),  # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo
            *(180, 186, 190, 194, 195, 196),  # mq_open, msgget, semget, shmget, shmctl, shmat
            *(92, 117, 270, 271),  # personality, ptrace, process_vm_readv, process_vm_writev
            *(39, 40, 41, 51, 97, 268),  # umount2, mount, pivot_root, chroot, unshare, setns
            *(217, 218, 219),  # add_key, request_key, keyctl
            *(241, 262, 264, 265),  # perf_event_open, fanotify_init, name_to_, open_by_handle_at
            *(279, 280, 282),  # memfd_create, bpf, userfaultfd
            *(104, 105, 106, 273, 294),  # kexec_load, init_, delete_module, finit_, kexec_file_
            *(60, 89, 116, 142, 224),  # quotactl, acct, syslog, reboot, swapon
            *_COMMON,
        ),
    ),
}
"""By the name of the machine (`platform.machine()`)."""
