"""The course's own kernels: one module per chapter, importable, tested, benchmarked."""
