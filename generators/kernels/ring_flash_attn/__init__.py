"""The kernel `ring_flash_attn`: rings of flash_attn over processes."""
