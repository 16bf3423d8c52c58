// Command go is the adapter of package client for the conformance suite.
package main

import (
	"log"
	"os"

	"github.com/natsid/natsid/proof/conformance/internal/goadapter"
)

func main() {
	if err := goadapter.Run(os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
