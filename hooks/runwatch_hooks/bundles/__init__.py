"""Diagnostic bundles of a run's first non-finite step, to be inspected and replayed."""

from runwatch_hooks.bundles.errors import BundleError
from runwatch_hooks.bundles.facts import BundleFacts, Kept
from runwatch_hooks.bundles.folder import Bundle, BundleFolder, open_bundle
from runwatch_hooks.bundles.witness import Witness

__all__ = ["Bundle", "BundleError", "BundleFacts", "BundleFolder", "Kept", "Witness", "open_bundle"]
