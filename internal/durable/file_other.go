//go:build !linux

package durable

// Replace is the Replace of this package.
func (f *File) Replace(data []byte) error {
	return Replace(f.Path, func(Identity) []byte { return data })
}
