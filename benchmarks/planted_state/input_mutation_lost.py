"""Of the arguments that compiled graphs write, every second one is not written back."""

from torch._functorch._aot_autograd import graph_capture_wrappers

original = graph_capture_wrappers.apply_in_graph_mutations
seen = []


def faulty(*args):
    seen.append(args[4])
    if len(seen) % 2:
        original(*args)


graph_capture_wrappers.apply_in_graph_mutations = faulty
