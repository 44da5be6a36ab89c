"""The model of the GPU: runs IR with numpy. It imports neither JAX nor a widget."""
