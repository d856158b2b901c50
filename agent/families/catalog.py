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
    "disk_full": Remedy("the disk is full", "Free space on the disk that the line names.", Retry.NO),
    "too_many_files": Remedy("too many open files", "Raise the limit (ulimit -n, LimitNOFILE=).", Retry.NO),
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
    # -- how it ended
    "worker_signal": Remedy(
        "the server crashed",
        "If it comes again: update the server; look for a core dump (coredumpctl) and at the kernel log.",
        Retry.FEW,
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
