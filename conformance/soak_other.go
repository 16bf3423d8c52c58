//go:build !unix

package main

import (
	"context"
	"errors"
	"io"
)

func soakCommand(context.Context, []string, io.Writer) error {
	return errors.New("soak pauses processes, which this system cannot")
}
