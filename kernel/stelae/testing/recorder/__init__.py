"""Recording what an engine with its own input and output does, and computing what a crash may leave of it.

An engine that reaches the disk through ``Files`` runs on the virtual disk, which loses, tears and reorders what was not
synced. An engine whose library does its own input and output cannot.

1. Such an engine runs in a child process (``scenario_process``), and its file calls are recorded (``record``, with
   ``preload`` or ``strace``), with marks of what it had acknowledged by then.
2. The calls are replayed on the virtual disk (``replay``). That gives the states that a loss of power may leave between
   any two calls, and within each write that is durable on return.
3. Each state is written into a directory. Another child (``check_process``) opens it with the real engine and checks it
   like a crash of the virtual disk.
"""
