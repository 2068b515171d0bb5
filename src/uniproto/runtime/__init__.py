"""Threads, memory, progress and interrupts of this process."""
