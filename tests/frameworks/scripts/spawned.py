"""PyTorch's distributed tests that its wheel has (torch.testing._internal), as test classes that pytest finds."""

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestSpawned(TestDistBackend, DistributedTest._DistTestBase):
    """Each test starts WORLD_SIZE processes by `multiprocessing`; BACKEND and TEMP_DIR are set by the caller."""

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()
