package subjects

import (
	"fmt"
	"hash/crc32"
)

// HeaderFormatRevision has the [FormatRevision] of the tag in replies with IDs of a tag that has a format. A caller
// that keeps the format requests it again where the header differs.
const HeaderFormatRevision = "Natsid-Format-Revision"

// A TagFormat is the reply to [Namespace.Format]. A caller may keep it.
type TagFormat struct {
	Tag      string `json:"tag"`
	Format   string `json:"format"` // as package format reads it
	Revision string `json:"revision"`
}

// FormatRevision returns the revision of a format: eight hexadecimal digits, of its CRC-32. Another format has another
// revision, but for one case in four billion.
func FormatRevision(format string) string {
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(format)))
}
