import os

import torch

from scfs.errors import UserError


def choose_device(name: str) -> torch.device:
    """The device of this process: as named, or a GPU if there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("This version trains in one process; start it without torchrun.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"Device '{name}' cannot be used: {reason}; use cpu or auto.") from None
    return device
