"""Whether a model fits a machine, reckoned before anything is loaded: what is needed, what there is, and the verdict.

Pure: nothing here imports MLX, starts a process or opens a connection. Sizes are whole bytes.
"""
