"""The space-time trace of a run: recorded by observers, and rendered as text or as a page. All of it is pure."""
