package format

var Sums = sums
