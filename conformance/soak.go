package main

import (
	"context"
	"errors"
	"io"
)

func soakCommand(ctx context.Context, args []string, out io.Writer) error { return errors.New("later") }
