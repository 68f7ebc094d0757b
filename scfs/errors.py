class UserError(ValueError):
    """Something the user can fix: one sentence that names what, where and what to do.

    The command line prints it without a traceback and exits with code 2.
    """
