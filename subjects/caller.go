package subjects

// HeaderCaller names the caller of a request for IDs, by its own choice: a name of the form of a tag, see [CheckTag].
// Workers that write callers down ignore a value of another form, and the others ignore each.
const HeaderCaller = "Natsid-Caller"
