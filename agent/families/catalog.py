"""What each slug means for a person, and whether another attempt can help."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.model import Retry
from agent.families.family import Remedy

CATALOG: Mapping[str, Remedy] = {
    # -- the command and its files: the same again fails the same way
    "bad_flag": Remedy(
        "the server does not know one of its arguments",
        "Compare the command in the configuration with `--help` of this version of the server.",
        Retry.NO,
    ),
    "bad_config": Remedy(
        "the server's options do not fit together, or not with the model",
        "Change the option that the line names.",
        Retry.NO,
    ),
    "bad_env": Remedy(
        "an environment variable breaks the start",
        "Correct or remove the variable in the configuration or in the environment file.",
        Retry.NO,
    ),
    "missing_weights": Remedy(
        "the model's files are missing, incomplete or damaged",
        "Check the model's path, that its disk is mounted, and that every file is there at its full size.",
        Retry.NO,
    ),
    "model_unreadable": Remedy(
        "the model cannot be read",
        "Check the path, and that the user whom the server runs as may read it and enter each folder above it.",
        Retry.NO,
    ),
    "unsupported_model": Remedy(
        "this build of the server does not know this kind of model",
        "Update the server, or take a model file that was made for this version.",
        Retry.NO,
    ),
    "tokenizer": Remedy(
        "the model's vocabulary does not fit this build of the server",
        "Update the server, or convert the model again.",
        Retry.NO,
    ),
    "trust_remote_code": Remedy(
        "the model brings code of its own, which the server may not run",
        "If you trust the model's author, add --trust-remote-code to the command.",
        Retry.NO,
    ),
    "version_mismatch": Remedy(
        "two installed packages do not fit",
        "Install the versions that this server's release asks for, best into a fresh environment.",
        Retry.NO,
    ),
    "jit_build": Remedy(
        "a GPU kernel could not be built at the start",
        "Install what the line misses (a C++ compiler, ninja, the CUDA toolkit), or clear the server's kernel cache.",
        Retry.NO,
    ),
    "chat_template": Remedy(
        "the chat template cannot be used",
        "Correct the template, or leave the option out and use the model's own.",
        Retry.NO,
    ),
    "lora_failed": Remedy(
        "a LoRA adapter or control vector cannot be loaded",
        "Check that the file is there and was made for this model.",
        Retry.NO,
    ),
    "draft_mismatch": Remedy(
        "the draft model does not fit the model",
        "Take a draft model with the same vocabulary, or start without one.",
        Retry.NO,
    ),
    "gated_repo": Remedy(
        "the model hub refuses access to the model",
        "Accept the model's licence on the hub, and give a valid token in the environment file.",
        Retry.NO,
    ),
    "exec_missing": Remedy(
        "the program to run does not exist",
        "Correct the first word of the command, or install the server.",
        Retry.NO,
    ),
    "exec_not_executable": Remedy(
        "the program to run is not executable",
        "Set its executable bit (chmod +x), and check that its disk is not mounted noexec.",
        Retry.NO,
    ),
    "missing_lib": Remedy(
        "a library or Python module is missing, or does not fit",
        "Install it into the environment that the command uses, or correct LD_LIBRARY_PATH.",
        Retry.NO,
    ),
    "permission_denied": Remedy(
        "the server may not read or write something that it needs",
        "Give the user whom the server runs as access to the path that the line names.",
        Retry.NO,
    ),
    "log_unwritable": Remedy(
        "the log folder cannot be written",
        "Give the agent's user write access to the log folder, or choose another one.",
        Retry.NO,
    ),
    # -- the host's hardware and driver
    "arch_unsupported": Remedy(
        "this build of the server has no code for this GPU or CPU",
        "Install a build made for this GPU generation (and this CPU).",
        Retry.NO,
    ),
    "driver_mismatch": Remedy(
        "the GPU driver and the server's CUDA version do not fit",
        "After a driver update: reboot. Else update the driver, or take a build for an older CUDA version.",
        Retry.NO,
    ),
    "no_gpu": Remedy(
        "the server finds no GPU",
        "Check `nvidia-smi`, the device nodes, and CUDA_VISIBLE_DEVICES.",
        Retry.FEW,
    ),
    "driver": Remedy("the GPU driver does not answer", "Check `nvidia-smi` and the kernel log; reboot.", Retry.WAIT),
    "gpu_lost": Remedy("a GPU is gone", "Check the kernel log for Xid messages; reset or reboot.", Retry.FEW),
    "gpu_fault": Remedy(
        "the GPU or its driver failed",
        "Check the kernel log for Xid messages and the GPU for remapped rows; reset it or reboot.",
        Retry.FEW,
    ),
    "illegal_memory": Remedy(
        "a GPU kernel of the server accessed memory that is not its own",
        "If it comes again: update the server, or turn off the newest of its optimisations.",
        Retry.FEW,
    ),
    "nccl": Remedy(
        "the GPUs could not talk to each other (NCCL)",
        "Start once with NCCL_DEBUG=WARN; check NVLink, the fabric manager and /dev/shm.",
        Retry.FEW,
    ),
    # -- memory and disk
    "cuda_oom": Remedy(
        "GPU memory ran out",
        "Free GPU memory, or lower the context, the number of slots, or the layers on the GPU.",
        Retry.FEW,
    ),
    "kv_cache_too_small": Remedy(
        "no room for the context (KV cache)",
        "Lower the context size or the number of slots, or quantise the KV cache.",
        Retry.NO,
    ),
    "gpu_memory_taken": Remedy("somebody else holds the GPU memory", "End it, or wait for it.", Retry.WAIT),
    "held_by_stranger": Remedy("somebody else holds the GPU memory", "End it, or wait for it.", Retry.WAIT),
    "host_oom": Remedy(
        "the host's memory (or a limit on memory or tasks) ran out",
        "Free memory, raise the limit (ulimit -v, MemoryMax=, TasksMax=), or take a smaller model or context.",
        Retry.FEW,
    ),
    # -- what a definition needs of the host
    "mount_missing": Remedy(
        "a file system that the server needs is not mounted, or another one is", "Mount it.", Retry.WAIT
    ),
    "storage_stalled": Remedy(
        "a file system that the server needs does not answer",
        "Look at its disk or its server (dmesg, findmnt); once it answers, all goes on by itself.",
        Retry.WAIT,
    ),
    "storage_slow": Remedy("the look at the server's files takes long", "Wait: its storage is slow.", Retry.WAIT),
    "file_missing": Remedy(
        "a file that the server needs is missing, or it may not read it",
        "Put it there, or give the server's user the right to read it.",
        Retry.NO,
    ),
    "patch_missing": Remedy(
        "a file does not contain a text that it must contain", "Apply the patch to that file again.", Retry.NO
    ),
    "file_changed": Remedy(
        "a file is not the one that its digest says", "Put the right file there, or correct its digest.", Retry.NO
    ),
    "volatile_path": Remedy(
        "a file that the server needs lies where a boot, or its age, removes it", "Move it to a disk.", Retry.NO
    ),
    "space_low": Remedy(
        "there is less free space, or there are fewer inodes, than the server needs", "Free space there.", Retry.WAIT
    ),
    "shm_small": Remedy(
        "The shared memory is smaller than the server needs", "Enlarge it: mount -o remount,size=... /dev/shm", Retry.NO
    ),
    "disk_low": Remedy(
        "there is too little room where the server writes",
        "Free space on that disk; it goes on by itself when there is room again.",
        Retry.WAIT,
    ),
    "disk_full": Remedy("the disk is full", "Free space on the disk that the line names.", Retry.NO),
    "too_many_files": Remedy("too many open files", "Raise the limit (ulimit -n, LimitNOFILE=).", Retry.NO),
    "shm_too_small": Remedy(
        "the shared memory (/dev/shm) is too small",
        "Give it more: mount /dev/shm larger, or start the container with --shm-size or --ipc=host.",
        Retry.NO,
    ),
    "cuda_graph_capture": Remedy(
        "the CUDA graphs could not be captured",
        "Leave GPU memory free for them, or start without graphs (--enforce-eager, --disable-cuda-graph).",
        Retry.FEW,
    ),
    # -- network
    "port_in_use": Remedy(
        "the server cannot listen on its address",
        "Free the port or choose another one; the host must be an address of this machine.",
        Retry.FEW,
    ),
    "port_taken": Remedy("the port is taken by another program", "End it, or choose another port.", Retry.WAIT),
    "hf_unreachable": Remedy(
        "the model hub cannot be reached",
        "Check the network and the proxy, or download the model beforehand.",
        Retry.FEW,
    ),
    "ray_cluster": Remedy(
        "Ray cannot place the workers",
        "Check `ray status`: GPUs for each worker, every node joined, and the address of this node.",
        Retry.FEW,
    ),
    "nccl_init_hang": Remedy(
        "the GPUs do not find each other (NCCL)",
        "Start once with NCCL_DEBUG=INFO; check NCCL_SOCKET_IFNAME, NVLink, and ACS or IOMMU settings.",
        Retry.FEW,
    ),
    # -- how it ended
    "worker_signal": Remedy(
        "the server crashed",
        "If it comes again: update the server; look for a core dump (coredumpctl) and at the kernel log.",
        Retry.FEW,
    ),
    "worker_died": Remedy(
        "a worker process of the server died",
        "Look further up in its log, and at the kernel log, for what ended it.",
        Retry.FEW,
    ),
    "watchdog": Remedy(
        "the server hung and its own watchdog ended it",
        "Look at the kernel log for Xid messages; if it comes again, update the server, or raise its watchdog's limit.",
        Retry.FEW,
    ),
    "warmup_failed": Remedy(
        "the first request, which the server makes to itself, failed",
        "Set NO_PROXY=127.0.0.1,localhost if http_proxy is set; else read the lines below it.",
        Retry.FEW,
    ),
    "model_load_failed": Remedy(
        "a model of the repository could not be loaded",
        "Read the reason in the line or in the server's table of models.",
        Retry.NO,
    ),
    "external_kill": Remedy(
        "the server was ended by a signal from outside",
        "Find out who ended it: an operator, a login session that closed, or the kernel (journalctl -k).",
        Retry.YES,
    ),
    "exited_zero": Remedy(
        "the server ended by itself, with exit code 0",
        "Read the end of its log; check that the command stays in the foreground.",
        Retry.FEW,
    ),
    "launch_failed": Remedy(
        "the server could not be launched", "Ask `gpuagent why` on the host, and read the agent's own log.", Retry.FEW
    ),
    "left_overs": Remedy(
        "processes of an earlier start are still in its control group", "End those that the text names.", Retry.FEW
    ),
    "still_ending": Remedy(
        "systemd has not ended its unit yet", "Wait for it; what hangs is told by: systemctl status", Retry.WAIT
    ),
    "digest_differs": Remedy(
        "the configuration on the disk is not the one in force", "Take it over with: gpuagent reload", Retry.WAIT
    ),
    "address_unavailable": Remedy(
        "the address that the server is to listen on is not one of this host",
        "Correct the host in the configuration, or bring the network interface up.",
        Retry.NO,
    ),
    "start_limit": Remedy(
        "the start took longer than its definition allows",
        "Raise start_limit_s, or remove it: without it a slow start is waited for, and a stalled one is said.",
        Retry.FEW,
    ),
    "stalled": Remedy("the start made no progress", "Read the log; check disk, network and GPUs.", Retry.FEW),
    "unhealthy": Remedy("the server stopped answering", "Read the end of its log.", Retry.FEW),
    "unkillable": Remedy(
        "a process of the server cannot be ended: it hangs in the kernel",
        "Check disk, network filesystem and GPU driver; only a reboot will free what it holds.",
        Retry.NO,
    ),
    "unknown": Remedy("the server ended, and no cause is known", "Read the end of its log.", Retry.YES),
}
