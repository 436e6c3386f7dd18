"""packaging/tools are programs beside each other, as they are when they run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "packaging/tools"))
