import errno

# System errors that the user can fix: no permission, read-only, disk full, over quota.
FIXABLE_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


class UserError(ValueError):
    """Something the user can fix: one sentence that names what, where and what to do.

    The command line prints it without a traceback and exits with code 2.
    """
