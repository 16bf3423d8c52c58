package vectors

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/proof/conformance/internal/goadapter"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A recorder draws IDs from a desk with package client.
type recorder struct {
	nc   *nats.Conn
	desk *rig.Desk
	ids  *client.Client
}

func newRecorder(url string) (*recorder, error) {
	nc, err := rig.Connect(url)
	if err != nil {
		return nil, err
	}
	desk, err := rig.OpenDesk(nc, string(subjects.DefaultNamespace))
	return &recorder{nc, desk, client.Must(client.New(nc, client.Config{Log: slog.New(slog.DiscardHandler)}))}, err
}

const patience = time.Minute

// draw makes a call for a tag of its own, and returns the request that it sent, nil if none.
func (r *recorder) draw(tag string, within time.Duration, call func(context.Context) error) (*rig.Request, error) {
	before := len(r.desk.Seen())
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := call(ctx)
	for _, sent := range r.desk.Seen()[before:] {
		if sent.Kind() == "segment."+tag {
			return sent, err
		}
	}
	return nil, err
}

// outcome returns the refusal of a call that has sent nothing; nil for one that got IDs.
func outcome(sent *rig.Request, err error) (*Refusal, error) {
	if err == nil && sent != nil {
		return nil, nil
	}
	if e, ok := errors.AsType[*subjects.Error](err); ok && sent == nil {
		return &Refusal{int(e.Code), e.Text}, nil
	}
	return nil, fmt.Errorf("vectors: %v, after the request %v", err, sent)
}

func (r *recorder) tags(files map[string][]byte) error {
	cases := tagCases()
	for i := range cases {
		c := &cases[i]
		sent, err := r.draw(c.Tag, patience, func(ctx context.Context) error {
			h, err := r.ids.Segment(c.Tag, client.SegmentConfig{})
			if err == nil {
				_, err = h.Next(ctx)
			}
			return err
		})
		if c.Refusal, err = outcome(sent, err); err != nil {
			return err
		}
		if sent != nil {
			c.Subject = sent.Subject
		}
	}
	return put(files, "tags.json", "Tags: the subject of a request in the namespace id, or the client's refusal.",
		cases, func(c Tag) Case { return c.Case })
}

func (r *recorder) counts(files map[string][]byte) error {
	cases := countCases()
	for i := range cases {
		c := &cases[i]
		sent, err := r.draw("order", patience, func(ctx context.Context) error { return r.nextN(ctx, c.N) })
		if c.Refusal, err = outcome(sent, err); err != nil {
			return err
		}
		if sent != nil {
			c.Body = &sent.Body
		}
	}
	return put(files, "counts.json", "Counts of IDs: the body of a request, or the client's refusal. "+
		"What Go's compiler refuses is refused as other counts are.", cases,
		func(c Count) Case { return c.Case })
}

// nextN requests as many IDs as a JSON value says.
func (r *recorder) nextN(ctx context.Context, value json.RawMessage) error {
	n, err := goadapter.Count(value)
	if err == nil {
		_, err = client.Must(r.ids.Segment("order", client.SegmentConfig{})).NextN(ctx, n)
	}
	return err
}

func (r *recorder) replies(files map[string][]byte) error {
	cases := replyCases()
	for i := range cases {
		c := &cases[i]
		r.desk.Say(func(q *rig.Request) { q.Answer(c.Text()) })
		_, err := r.draw("order", patience, func(ctx context.Context) error {
			runs, err := client.Must(r.ids.Segment("order", client.SegmentConfig{})).NextN(ctx, c.N)
			for _, run := range runs {
				c.Runs = append(c.Runs, [2]string{run.First.String(), run.Last.String()})
			}
			return err
		})
		if err != nil && !errors.Is(err, client.ErrNotNatsid) {
			return fmt.Errorf("vectors: reply %s: %w", c.Name, err)
		}
	}
	return put(files, "replies.json", "Bodies of replies to a request for n IDs: the runs of IDs. "+
		"Without runs the reply is not natsid's, and no call gets an ID of it.", cases,
		func(c Reply) Case { return c.Case })
}

func (r *recorder) failures(files map[string][]byte) error {
	cases := failureCases()
	for i := range cases {
		c := &cases[i]
		r.desk.Say(func(q *rig.Request) { q.Reply(c.Headers, c.Body) })
		err := r.askAgain(func(ctx context.Context) error {
			// A handle of its own: a pause that one reply demands holds no other case.
			h := client.Must(r.ids.Segment("order", client.SegmentConfig{MaxBatch: client.DefaultMaxBatch + i}))
			_, err := h.Next(ctx)
			return err
		})
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*subjects.Error](err); ok {
			c.Code, c.Text = int(e.Code), e.Text
		}
		if c.Kind, c.Again = goadapter.Final(err); c.Kind == "" {
			return fmt.Errorf("vectors: error %s: %w", c.Name, err)
		}
	}
	r.desk.Say(rig.Issue)
	return put(files, "errors.json", "Replies to a request for one ID, by their headers: "+
		"the kind of the error, and whether the client asks again until its time is up.", cases,
		func(c Failure) Case { return c.Case })
}

// askAgain makes a call with ever more time, until it ends for another reason than that no answer has come.
func (r *recorder) askAgain(call func(context.Context) error) (err error) {
	for within := 200 * time.Millisecond; within < patience; within *= 4 {
		_, err = r.draw("order", within, call)
		if kind, _ := goadapter.Final(err); err == nil || kind != "" {
			return err
		}
	}
	return err
}

func (r *recorder) ages(files map[string][]byte) error {
	cases := ageCases()
	for i := range cases {
		c := &cases[i]
		name := fmt.Sprint("t", i) // requests for ranges that follow are not of this case
		sent, err := r.draw(name, patience, func(ctx context.Context) error {
			age := time.Duration(c.MaxAgeMs) * time.Millisecond
			h, err := r.ids.Segment(name, client.SegmentConfig{Prefetch: c.N, MaxAge: age})
			if err == nil {
				_, err = h.Next(ctx)
			}
			return err
		})
		if c.Refusal, err = outcome(sent, err); err != nil {
			return err
		}
		if sent != nil {
			c.Header = sent.Header.Get(subjects.HeaderPrefetch)
		}
	}
	return put(files, "ages.json", "Sizes and ages of prefetched ranges: the header "+subjects.HeaderPrefetch+
		", whose value may spell the same duration otherwise, or the client's refusal.", cases,
		func(c Age) Case { return c.Case })
}

func layouts(files map[string][]byte) error {
	cases := layoutCases()
	for i := range cases {
		c := &cases[i]
		if parts, err := goadapter.Decode(c.Layout, c.ID); err != nil {
			c.Error = err.Error()
		} else {
			c.Parts = parts
		}
	}
	return put(files, "layouts.json", "Snowflakes of a layout, which has Leaf's epoch unless it is article: "+
		"their parts, or the error.", cases, func(c Layout) Case { return c.Case })
}

func formats(files map[string][]byte) error {
	cases := formatCases()
	for i := range cases {
		if err := cases[i].play(); err != nil {
			return err
		}
	}
	return put(files, "formats.json", "Formats of package format: parse says the highest number, "+
		"write the text of an ID, which is read back as it, and read the ID of a text; or each the error.", cases,
		func(c Text) Case { return c.Case })
}

// play records what a format does.
func (c *Text) play() error {
	var opts []format.Option
	if c.Layout != "" {
		l, err := snowflake.ParseLayout(c.Layout)
		if err != nil {
			return err
		}
		opts = append(opts, format.Snowflakes(l))
	}
	if c.Lenient {
		opts = append(opts, format.Lenient())
	}
	keys := make(map[string][]byte)
	for name, text := range c.Keys {
		var err error
		if keys[name], err = hex.DecodeString(text); err != nil {
			return err
		}
	}
	opts = append(opts, format.Keys(c.Tag, keys))
	f, err := format.Parse(c.Format, opts...)
	switch {
	case err != nil && c.Do != "parse":
		return err
	case err != nil:
	case c.Do == "parse":
		c.Max = f.Max().String()
	case c.Do == "write":
		err = c.write(f)
	default:
		err = c.read(f)
	}
	if err != nil {
		c.Error = err.Error()
	}
	return nil
}

func (c *Text) write(f *format.Format) error {
	id, err := strconv.ParseInt(c.ID, 10, 64)
	if err != nil {
		return err
	}
	c.Text, err = f.Format(subjects.ID(id))
	return err
}

func (c *Text) read(f *format.Format) error {
	id, err := f.Read(c.Text)
	if e, ok := errors.AsType[*format.ReadError](err); ok {
		c.At, c.Reason = &e.At, e.Reason
		return nil
	}
	if err == nil {
		c.ID = id.String()
	}
	return err
}
