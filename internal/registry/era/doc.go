// Package era is the identity of a registry of tags, with the eras of its history; it is internal to natsid and may
// change.
//
// # Eras and offsets
//
// A registry that went back to an earlier state, or lost its marks, does not know what was loaded since. So it begins a
// new era, whose offset is above that of each era before, by more IDs than any tag can have moved since. An entry of a
// tag names the era in which its mark was written. In the present era its mark is
//
//	mark + max(0, offset(present) - offset(the entry's era))
//
// and whoever writes the entry writes that mark and the present era. An entry of no era, and a tag without entry, have
// the offset 0; so a tag that was lost, too, begins above all that it can have issued.
//
// Law: each new era of a registry has an offset above all that its identity and the provers of the incident know. So a
// mark of any known era is never read as a lower one. A resume is one compare-and-set on the identity: it raises no
// tag, and asks no clock.
//
// A tag with a last number has no room for an offset: it is undecided until an operator says where it goes on.
package era
