"""Marks of tests that want the accelerators of this machine."""

import pytest
import torch

NUM_CARDS = torch.cuda.device_count()

needs_card = pytest.mark.skipif(NUM_CARDS < 1, reason="wants an accelerator")
needs_two = pytest.mark.skipif(NUM_CARDS < 2, reason="wants two accelerators")
