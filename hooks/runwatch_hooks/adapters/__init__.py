"""The same hook behind other people's training loops: one module a framework.

Import the module of the framework you use: `runwatch_hooks.adapters.huggingface`, `.lightning`
or `.accelerate`; none of them is needed by anything else of ours.
"""
