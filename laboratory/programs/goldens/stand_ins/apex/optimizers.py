"""Adam and SGD with the state of Apex's: fp32, made in the first step; steps allocate nothing else."""

import torch


class FusedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **_):
        super().__init__(
            params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay)
        )
        self._flag = torch.zeros(1, dtype=torch.int32, device="cuda")

    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for one in group["params"]:
                if one.grad is not None and not self.state[one]:
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.state[one][name] = torch.zeros_like(one.data, dtype=torch.float32)


class FusedSGD(FusedAdam):
    pass
