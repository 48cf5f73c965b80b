"""How a simulated node gets a replica, and how it can lose one.

A node that has the tablet builds its replica from its disk (``replica_builder``). A node that does not have it answers
"not hosted" until a leader asks it to create one; it then creates the replica with production's steps
(``replica_hosting``, ``observed_loader``). Requests may be late (``late_requests``), power may be lost within a
creation (``creation_crashes``), and the files of a replica can be removed (``lost_files``)."""
