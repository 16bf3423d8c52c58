package natsembed

// Look is a look of [Host.Tend], which must not run.
func (h *Host) Look() (trouble error) { return h.look() }

// Reported returns what nats-server reported at the last look.
func (h *Host) Reported() string { return h.reported }
