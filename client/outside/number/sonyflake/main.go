// Command sonyflake prints IDs of sony/sonyflake under a worker number of natsid: natsid number -- sonyflake 3.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/sony/sonyflake/v2"
)

func main() {
	ids, err := sonyflake.New(sonyflake.Settings{
		MachineID: func() (int, error) { return strconv.Atoi(os.Getenv("NATSID_WORKER_NUMBER")) },
	})
	if err != nil {
		log.Fatal(err)
	}
	n, _ := strconv.Atoi(os.Args[1])
	for range n {
		id, err := ids.NextID()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(id)
	}
}
