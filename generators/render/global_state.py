"""What a program may change for the whole process: names of the oracles, and how each is read."""

from __future__ import annotations

GLOBAL = "global state"
GLOBAL_STATE = {
    "rng_state": "torch.get_rng_state().tolist()", "python_rng_state": "random.getstate()",
    "grad_mode": "torch.is_grad_enabled()", "default_dtype": "torch.get_default_dtype()",
    "inference_mode": "torch.is_inference_mode_enabled()",
    "autocast": 'torch.is_autocast_enabled("cpu")', "num_threads": "torch.get_num_threads()",
    "deterministic_algorithms": "torch.are_deterministic_algorithms_enabled()",
    "flash_sdp": "torch.backends.cuda.flash_sdp_enabled()",
    "mem_efficient_sdp": "torch.backends.cuda.mem_efficient_sdp_enabled()",
    "math_sdp": "torch.backends.cuda.math_sdp_enabled()",
    "matmul_precision": "torch.get_float32_matmul_precision()",
}  # fmt: skip
