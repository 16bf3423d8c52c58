//go:build !linux && !darwin

package terminal

import "os"

func isTerminal(*os.File) bool { return false }

func sizeOf(*os.File) (columns, lines int) { return 0, 0 }

func quiet(*os.File) (restore func()) { return func() {} }

func readKey(*os.File) byte { return 0 }
