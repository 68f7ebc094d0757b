"""The paper, as plain PyTorch: tensors and modules in, named losses out.

Read `modes` (what is contrasted with what), `search` (Eqs. 7-8), `heads` (9-10), `losses` (3-6, 11), `encoder`, and
`scfs` (1-2), in that order. `objectives` has the paper's contrast and others that may take its place.
"""
