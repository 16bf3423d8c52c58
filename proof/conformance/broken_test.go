package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/scenarios"
)

// broken are adapters that break the contract, each in one way, in the methods next and nextN.
var broken = []struct {
	as, want string // what they do, and a part of the sentence that says so
}{
	{"hangs", "the adapter hangs: no response to"},
	{"dies", "the adapter died: exit status 3; its log ends with: out of luck"},
	{"prints rubbish", "the adapter printed what is no response: \"Hello\""},
	{"answers twice", "the adapter answered request"},
	{"answers another", "the adapter answered request"},
	{"returns a number", "the adapter breaks the contract: the result of next: id: 1001 (json.Number) is not"},
	{"has a kind of its own", "an error of the kind \"Sad\", which the contract has not"},
	{"lives on", "the adapter did not end within"},
}

// actBroken is an adapter of package client's answers, but for one fault. It does not return.
func actBroken(as string) {
	names := []string{
		"describe", "connect", "next", "nextN", "disconnect", "burst", "cancel", "close", "stats", "decode",
	}
	switch as {
	case "lacks a method":
		names = names[:len(names)-1]
	case "has another method":
		names = append(names, "fly")
	}
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		var r struct {
			ID     int64
			Method string
		}
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			panic(err)
		}
		result := "{}"
		switch r.Method {
		case "describe":
			result = fmt.Sprintf(`{"language":"Broken","client":"none","profile":"full","methods":["%s"]}`,
				strings.Join(names, `","`))
		case "next", "nextN":
			breakDown(as, r.ID)
			continue
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":%s}\n", r.ID, result)
	}
	if as == "lives on" {
		select {}
	}
	os.Exit(0)
}

// breakDown answers a request for IDs in the adapter's way.
func breakDown(as string, id int64) {
	respond := func(id int64, text string) { fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%d,%s}\n", id, text) }
	closed := `"error":{"code":-32000,"message":"closed","data":{"kind":"Closed"}}`
	switch as {
	case "hangs":
	case "dies":
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(3)
	case "prints rubbish":
		fmt.Println("Hello")
	case "answers twice":
		respond(id, closed)
		respond(id, closed)
	case "answers another":
		respond(id+1000, closed)
	case "returns a number":
		respond(id, `"result":{"id":1001}`)
	case "has a kind of its own":
		respond(id, strings.Replace(closed, "Closed", "Sad", 1))
	default:
		respond(id, closed)
	}
}

func TestAnAdapterThatBreaksTheContractFailsWithASentence(t *testing.T) {
	t.Parallel()
	for _, b := range broken {
		t.Run(b.as, func(t *testing.T) {
			t.Parallel()
			w := world(t, self(t, b.as))
			within := time.Minute
			if b.as == "hangs" {
				within = 2 * time.Second
			}
			err := w.Play(scenarios.Scenario{Play: func(s *scenarios.Stage) {
				_, _ = s.Begin("next", map[string]any{}).Wait(within)
				for end := time.Now().Add(within); b.as == "answers twice" && s.Fault() == nil; {
					if time.Sleep(time.Millisecond); time.Now().After(end) {
						return
					}
				}
			}}, "full", "broken")
			if err == nil || !strings.Contains(err.Error(), b.want) {
				t.Errorf("%v, want %s", err, b.want)
			}
		})
	}
}

func TestAnAdapterOfOtherMethodsIsRefused(t *testing.T) {
	t.Parallel()
	for as, want := range map[string]string{
		"lacks a method": "it lacks the method decode", "has another method": "it has the method fly",
	} {
		if _, err := world(t, self(t, as)).Describe(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", as, err, want)
		}
	}
}
