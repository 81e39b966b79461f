"""What XLA compiled and ran, and what its instructions cost."""
