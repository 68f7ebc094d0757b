"""The paper, as plain PyTorch: tensors and modules in, named losses out.

Read in this order: `modes` (the terms of each contrast mode), `search` (Eqs. 7-8), `heads` (9-10), `losses` (3-6, 11),
`objectives` (the paper's loss and three alternatives), `encoder` and `scfs` (1-2).
"""
