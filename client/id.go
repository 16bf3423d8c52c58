package client

import "strconv"

// An ID is what a call returns: at least 1.
type ID int64

// String returns the ID in decimal digits.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }
