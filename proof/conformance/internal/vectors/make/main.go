// Command make writes the vectors of the conformance suite into the folder that it is given.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/natsid/natsid/proof/conformance/internal/vectors"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: make FOLDER")
	}
	files, err := vectors.Make()
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
