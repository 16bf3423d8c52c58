package subjects

// HeaderExplain, with the value 1, asks for the origin of the IDs in a reply. A reply with IDs of a tag then has the
// headers below. It is for debugging, and costs allocations; a request without it costs nothing more.
const HeaderExplain = "Natsid-Explain"

// Headers of a reply to a request with HeaderExplain. Loads and revisions have a value for each load, in the order of
// the IDs; both are absent where the worker does not remember the load.
const (
	HeaderWorker   = "Natsid-Worker"   // the name of the worker
	HeaderLoad     = "Natsid-Load"     // the first and the last ID of a load, as 1-1000
	HeaderRevision = "Natsid-Revision" // of the tag's mark as the load read it; 0 where there are no marks
)
