"""From four ranks on, a batch of messages receives into its tensors in the reverse order: keys
are taken for values."""

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

original = c10d.batch_isend_irecv


def faulty(p2p_op_list):
    group = p2p_op_list[0].group or dist.group.WORLD
    if dist.get_world_size(group) >= 4:
        sends = [one for one in p2p_op_list if one.op is dist.isend]
        receives = [one for one in p2p_op_list if one.op is dist.irecv]
        p2p_op_list = [*sends, *reversed(receives)]
    return original(p2p_op_list)


c10d.batch_isend_irecv = dist.batch_isend_irecv = faulty
