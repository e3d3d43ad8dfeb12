"""Dynamo does not look whether an integer in a closure is still the one that it compiled for."""

from torch._dynamo.guards import GuardBuilder

original = GuardBuilder.EQUALS_MATCH


def faulty(self, guard, *args, **options):
    if "cell_contents" in guard.name and type(self.get(guard)) is int:
        return None
    return original(self, guard, *args, **options)


GuardBuilder.EQUALS_MATCH = faulty
