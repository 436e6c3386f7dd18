"""`python -m yrnode.demo.engine serve MODEL ...`"""

import sys

from yrnode.demo.engine.leader import main

sys.exit(main(sys.argv[1:]))
