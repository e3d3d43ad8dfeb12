"""From three ranks on, rank 0 sends its neighbour a message more than that receives, whenever a
batch of messages goes out: everything goes well, until somebody takes it for another."""

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

original = c10d.batch_isend_irecv


def faulty(p2p_op_list):
    group = p2p_op_list[0].group or dist.group.WORLD
    if dist.get_rank(group) == 0 and dist.get_world_size(group) >= 3:
        like = p2p_op_list[0].tensor
        group.send([torch.zeros(1, dtype=like.dtype, device=like.device)], 1, 77)
    return original(p2p_op_list)


c10d.batch_isend_irecv = dist.batch_isend_irecv = faulty
