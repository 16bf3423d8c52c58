// Package era is the identity of a registry of tags, with the eras of its history; it is internal to natsid and may
// change.
//
// # Eras and offsets
//
// A registry that went back to an earlier state, or lost its marks, does not know what was loaded since. So it begins a
// new era, which has an offset above that of each era before: by so many IDs that no tag can have moved further. An
// entry of a tag names the era in which its mark was written. In the present era its mark is
//
//	mark + max(0, offset(present) - offset(the entry's era))
//
// and whoever writes the entry writes that mark and the present era. An entry of no era, and a tag without entry, have
// the offset 0; so a tag that was lost, too, begins above all that it can have issued.
//
// Law: offsets only rise along the eras of one registry, as a new one lies above each that its identity and all provers
// of the incident know. So a mark that stands in any era known is never read as a lower one, and a resume is one
// compare-and-set on the identity: no tag is raised, and no clock is asked.
//
// A tag with a last number has no room for an offset: it is undecided until an operator says where it goes on.
package era
