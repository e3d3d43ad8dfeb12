"""What changes from run to run in a message is told alike."""

from __future__ import annotations

from attnfuzz.corpus.volatile import mask_volatile


def test_a_mod_that_is_a_method_is_told_alike_whatever_its_name() -> None:
    text = "Got <bound method {0} of <attention_program.{1} object at 0x7f5c>>"
    told = {
        mask_volatile(text.format(*names))
        for names in (
            ("MaskMod.mask_mod", "MaskMod"),
            ("AllFalseMask.all_false_mask", "AllFalseMask"),
        )
    }
    assert told == {"Got <bound method MaskMod.mask_mod of <<program>.MaskMod>>"}
