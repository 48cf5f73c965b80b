"""What an engine with input and output of its own would find after a crash: recorded, not assumed.

An engine that reaches the disk through ``Files`` runs on the virtual disk, which loses, tears and reorders what
was not synced. One whose library does its own input and output cannot. So it runs in a child process whose file
calls are recorded (``means``, ``preload``, ``straced``), with marks of what it had acknowledged by then (``live``).
The calls are replayed on the virtual disk (``replay``), which yields, between any two calls and inside each write
that counts as durable on return, the states that a loss of power may leave. Each is written into a directory, opened
by the real engine in another child, and judged like a crash of the virtual disk (``judge``)."""
