"""Two threads allocate in operators, while the allocator asks again and again whether another stream is done."""

from __future__ import annotations

import threading

import torch
import torch.nn.functional as F

ROUNDS = 200


def main() -> None:
    x = torch.ones(512, 256, device="cuda")
    side = torch.cuda.Stream()

    def work() -> None:
        for _ in range(ROUNDS):
            with torch.cuda.stream(side):
                torch.mm(x, x.T)
            y = F.rms_norm(x, (256,))
            y.record_stream(side)
            del y

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("PASSED", flush=True)


if __name__ == "__main__":
    main()
