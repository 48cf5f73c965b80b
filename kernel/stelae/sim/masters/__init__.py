"""Masters in a small world: real cores over a modelled log, with tablet servers and clients, all from one seed."""
