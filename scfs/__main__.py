import sys

from scfs.cli import main

sys.exit(main())
