"""Programs as Python: `module.source` is what runs, `repro.repro` reproduces a failure."""
