"""The first gradient of a backward pass that compiled autograd made is a tenth too large."""

from torch._dynamo.compiled_autograd import AutogradCompilerInstance

original = AutogradCompilerInstance.end_capture


def faulty(self, outputs):
    run, compiled = original(self, outputs)

    def run_faulty(*args):
        first, *others = run(*args)
        return [first if first is None else first * 1.1, *others]

    return run_faulty, compiled


AutogradCompilerInstance.end_capture = faulty
