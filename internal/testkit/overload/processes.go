package overload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// slowConsumers returns how many connections the nats-servers have cut off because they read too slowly.
func slowConsumers(monitors []string) (n int64, err error) {
	for _, url := range monitors {
		r, err := http.Get(url + "/varz")
		if err != nil {
			return 0, err
		}
		defer r.Body.Close()
		var varz struct {
			SlowConsumers int64 `json:"slow_consumers"`
		}
		if err := json.NewDecoder(r.Body).Decode(&varz); err != nil {
			return 0, err
		}
		n += varz.SlowConsumers
	}
	return n, nil
}

// watchMemory begins to watch the memory of processes. The function that it returns ends that, and returns what they
// had at the start and at most: the largest server, and the largest worker.
func watchMemory(servers, workers []int) (stop func() (ofServer, ofWorker [2]int)) {
	quit, done := make(chan struct{}), make(chan struct{})
	var ofServer, ofWorker [2]int
	look := func(i int) {
		for _, pid := range servers {
			ofServer[i] = max(ofServer[i], memory(pid))
		}
		for _, pid := range workers {
			ofWorker[i] = max(ofWorker[i], memory(pid))
		}
	}
	look(0)
	go func() {
		defer close(done)
		for {
			look(1)
			select {
			case <-quit:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() ([2]int, [2]int) { close(quit); <-done; return ofServer, ofWorker }
}

// memory returns how many bytes of a process are in memory; 0 if the system does not say it.
func memory(pid int) int {
	statm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := strings.Fields(string(statm)); len(fields) > 1 {
		pages, _ := strconv.Atoi(fields[1])
		return pages * os.Getpagesize()
	}
	return 0
}

// Period is that of a quota. A process that has used up its quota stands still until
// the period ends: a short one is closer to a slow machine.
const Period = 20 * time.Millisecond

// ErrNoQuota is returned where CPU time cannot be limited.
var ErrNoQuota = errors.New("CPU time cannot be limited here: run on Linux, with the right to make control groups, " +
	"as root has")

// Limit gives a process no more CPU time than quota in each Period, by a control group of its own, until the function
// that it returns is called. The least is 1 ms. It returns ErrNoQuota if the system does not allow it.
func Limit(pid int, quota time.Duration) (release func(), err error) {
	const root = "/sys/fs/cgroup"
	parent, us, period := filepath.Join(root, "cpu"), quota.Microseconds(), Period.Microseconds()
	settings := [][2]string{{"cpu.cfs_period_us", fmt.Sprint(period)}, {"cpu.cfs_quota_us", fmt.Sprint(us)}}
	if _, err := os.Stat(filepath.Join(parent, settings[0][0])); err != nil { // version 2
		parent, settings = root, [][2]string{{"cpu.max", fmt.Sprint(us, " ", period)}}
		// Most systems have it so already. Where it cannot be, there is no cpu.max.
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0)
	}
	group, err := os.MkdirTemp(parent, "natsid-overload-")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoQuota, err)
	}
	release = func() {
		_ = os.WriteFile(filepath.Join(parent, "cgroup.procs"), fmt.Append(nil, pid), 0) // fails if it has ended
		_ = os.Remove(group)
	}
	for _, s := range append(settings, [2]string{"cgroup.procs", fmt.Sprint(pid)}) {
		if err := os.WriteFile(filepath.Join(group, s[0]), []byte(s[1]), 0); err != nil {
			release()
			return nil, fmt.Errorf("%w: %w", ErrNoQuota, err)
		}
	}
	return release, nil
}
