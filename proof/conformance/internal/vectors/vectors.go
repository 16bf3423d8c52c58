// Package vectors makes the examples that hold clients in any language to the wire: it has package client draw IDs from
// a responder, and records what it sends, returns and refuses.
package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
)

// A Case is what each vector has.
type Case struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// A Refusal is the client's own refusal: nothing is sent.
type Refusal struct {
	Code int    `json:"code"`
	Text string `json:"text"`
}

// A Tag is a tag of tags.json: either a subject or a refusal.
type Tag struct {
	Case
	Tag     string   `json:"tag"`
	Subject string   `json:"subject,omitempty"` // of requests, in the namespace id
	Refusal *Refusal `json:"refusal,omitempty"`
}

// A Count is a count of counts.json: either a body or a refusal.
type Count struct {
	Case
	N       json.RawMessage `json:"n"`
	Body    *string         `json:"body,omitempty"` // of the request
	Refusal *Refusal        `json:"refusal,omitempty"`
}

// A Reply is a reply of replies.json to a request for N IDs.
type Reply struct {
	Case
	N     int         `json:"n"`
	Body  string      `json:"body"`
	Times int         `json:"times,omitempty"` // the body is so many times Body; 0 means once
	Runs  [][2]string `json:"runs,omitempty"`  // none: the reply is not natsid's
}

// A Failure is a reply of errors.json to a request for one ID.
type Failure struct {
	Case
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Kind    string            `json:"kind,omitempty"` // "" if it holds an ID
	Again   bool              `json:"again"`          // the client asks again until its time is up
	Code    int               `json:"code,omitempty"`
	Text    string            `json:"text,omitempty"`
}

// An Age is a size and an age of ages.json: either a header or a refusal.
type Age struct {
	Case
	N        int      `json:"n"`
	MaxAgeMs int64    `json:"maxAgeMs"`
	Header   string   `json:"header,omitempty"` // or another spelling of the same duration
	Refusal  *Refusal `json:"refusal,omitempty"`
}

// A Layout is an ID of layouts.json: either its parts or an error.
type Layout struct {
	Case
	Layout string `json:"layout"`
	ID     string `json:"id"`
	Parts  any    `json:"parts,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A Text is what formats.json asks of a format, and the outcome.
type Text struct {
	Case
	Format  string            `json:"format"`
	Layout  string            `json:"layout,omitempty"` // of snowflakes
	Lenient bool              `json:"lenient,omitempty"`
	Tag     string            `json:"tag,omitempty"`
	Keys    map[string]string `json:"keys,omitempty"` // of masks: 32 bytes in hexadecimal digits, by name
	Do      string            `json:"do"`             // parse, write the ID, or read the text
	ID      string            `json:"id,omitempty"`
	Text    string            `json:"text,omitempty"`
	Max     string            `json:"max,omitempty"`
	Error   string            `json:"error,omitempty"`
	At      *int              `json:"at,omitempty"` // and Reason: of an error of reading
	Reason  string            `json:"reason,omitempty"`
}

// A File is one file of vectors.
type File[C any] struct {
	Says  string `json:"says"`
	Cases []C    `json:"cases"`
}

// Text returns the body of a reply.
func (r Reply) Text() string {
	return string(bytes.Repeat([]byte(r.Body), max(1, r.Times)))
}

// Read returns the cases of a file.
func Read[C any](file []byte) ([]C, error) {
	var f File[C]
	err := json.Unmarshal(file, &f)
	return f.Cases, err
}

// Make returns the content of all files by name.
func Make() (files map[string][]byte, err error) {
	dir, err := os.MkdirTemp("", "vectors-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := rig.StartServer(dir)
	if err != nil {
		return nil, err
	}
	defer s.WaitForShutdown()
	defer s.Shutdown()
	r, err := newRecorder(s.ClientURL())
	if err != nil {
		return nil, err
	}
	defer r.nc.Close()
	files = map[string][]byte{}
	for _, make := range []func(map[string][]byte) error{
		r.tags, r.counts, r.replies, r.failures, r.ages, layouts, formats,
	} {
		if err := make(files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// put writes a file. Each case has a name of its own, and says why it is there.
func put[C any](files map[string][]byte, name, says string, cases []C, about func(C) Case) error {
	var names []string
	for _, c := range cases {
		a := about(c)
		if a.Name == "" || a.Why == "" || slices.Contains(names, a.Name) {
			return fmt.Errorf("vectors: %s: the case %+v lacks a name of its own or a reason", name, a)
		}
		names = append(names, a.Name)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(File[C]{says, cases})
	files[name] = b.Bytes()
	return err
}
