// Command bwmarrin prints IDs of bwmarrin/snowflake under a worker number of natsid: natsid number -- bwmarrin 3.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/bwmarrin/snowflake"
)

func main() {
	number, err := strconv.ParseInt(os.Getenv("NATSID_WORKER_NUMBER"), 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	node, err := snowflake.NewNode(number)
	if err != nil {
		log.Fatal(err)
	}
	n, _ := strconv.Atoi(os.Args[1])
	for range n {
		fmt.Println(node.Generate())
	}
}
