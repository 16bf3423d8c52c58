// Package era is the identity of a registry of tags, with the eras of its history; it is internal to natsid and may
// change.
//
// # Eras and offsets
//
// A registry that went back to an earlier state, or lost its marks, does not know what was loaded since that state. So
// it begins a new era. Its offset is above those of all earlier eras, by more IDs than any tag was loaded since. An
// entry of a tag names the era in which its mark was written. In the present era its mark is
//
//	mark + max(0, offset(present) - offset(the entry's era))
//
// and each write of the entry writes that mark and the present era. An entry of no era has the offset 0. A tag without
// an entry has the mark 1 and the offset 0, so a tag whose entry was lost begins above all that it can have issued.
//
// Law: the offset of a new era is above all offsets that the identity and the provers of the incident know. So no mark
// of a known era is read too low. A resume is one compare-and-set on the identity: it writes no entry of a tag, and
// reads no clock.
//
// A tag with a last number has no room for an offset: it is undecided until an operator says where it continues.
package era
