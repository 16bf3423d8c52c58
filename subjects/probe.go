package subjects

// HeaderProbe marks a message on the subject of requests that asks whether
// somebody serves it, and for no ID. It is answered with nothing.
const HeaderProbe = "Natsid-Probe"
