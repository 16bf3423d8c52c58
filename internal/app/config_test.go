package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

func TestEachSettingIsCheckedAgainstItsRange(t *testing.T) {
	for _, tc := range []struct {
		want string // part of the fault; "" for none
		edit func(*app.Config)
	}{
		{"", func(*app.Config) {}},
		{"namespace", func(c *app.Config) { c.Namespace = "" }},
		{"namespace", func(c *app.Config) { c.Namespace = "a.b" }},
		{"namespace", func(c *app.Config) { c.Namespace = "a b" }},
		{"", func(c *app.Config) { c.Namespace = "A-b_9" }},
		{"layout", func(c *app.Config) { c.Layout.Time = 42 }},
		{"--layout or --epoch: ", func(c *app.Config) { c.Layout.Epoch = -1 }},
		{"--site -1", func(c *app.Config) { c.Site = -1 }},
		{"--site 1: want 0 to 0", func(c *app.Config) { c.Site = 1 }},
		{"", func(c *app.Config) { c.Layout, c.Site = snowflake.Article, 3 }},
		{"--site 4: want 0 to 3", func(c *app.Config) { c.Layout, c.Site = snowflake.Article, 4 }},
		{"--data", func(c *app.Config) { c.Data = "" }},
		{"", func(c *app.Config) { c.Data, c.NATS = "", "nats://n1" }},
		{"host:port", func(c *app.Config) { c.Listen = "localhost" }},
		{"host:port", func(c *app.Config) { c.Listen = "" }},
		{"host:port", func(c *app.Config) { c.Listen = "127.0.0.1:nats" }},
		{"host:port", func(c *app.Config) { c.Listen = "127.0.0.1:65536" }},
		{"--listen \":0\": other machines", func(c *app.Config) { c.Listen = ":0" }},
		{"--listen-conf", func(c *app.Config) { c.Listen = "0.0.0.0:4222" }},
		{"--listen-conf", func(c *app.Config) { c.Listen = "[::]:4222" }},
		{"--listen-conf", func(c *app.Config) { c.Listen = "192.0.2.1:4222" }},
		{"--listen-conf", func(c *app.Config) { c.Listen = "ids.example.com:4222" }},
		{"--listen-conf and --nats exclude", func(c *app.Config) { c.NATS, c.ListenConf = "nats://n1", "f" }},
		{"", func(c *app.Config) { c.Listen, c.NATS = ":4222", "nats://n1" }},
		{"512-1024", func(c *app.Config) { c.Numbers = &workerid.Span{First: 512, Last: 1024} }},
		{"", func(c *app.Config) { c.Numbers = &workerid.Span{First: 512, Last: 1023} }},
		{"", func(c *app.Config) { c.Listen = "localhost:4222" }},
		{"", func(c *app.Config) { c.Listen = "127.1.2.3:4222" }},
		{"", func(c *app.Config) { c.Listen = "[::1]:4222" }},
		{"", func(c *app.Config) { c.Listen, c.NATS = "", "nats://n1" }},
		{"replicas", func(c *app.Config) { c.Replicas = -1 }},
		{"replicas", func(c *app.Config) { c.Replicas = 6 }},
		{"max-step 0", func(c *app.Config) { c.MaxStep = 0 }},
		{"max-step", func(c *app.Config) { c.MaxStep = 1<<40 + 1 }},
		{"", func(c *app.Config) { c.MaxStep = 1 }},
		{"tag-poll", func(c *app.Config) { c.TagPoll = time.Second - 1 }},
		{"", func(c *app.Config) { c.TagPoll = time.Second }},
		{"not a pattern", func(c *app.Config) { c.AutoCreatePattern = "a[" }},
		{"", func(c *app.Config) { c.AutoCreatePattern = "order.*" }},
		{"--max-batch", func(c *app.Config) { c.MaxBatch = 0 }},
		{"--max-batch", func(c *app.Config) { c.MaxBatch = 1_000_001 }},
		{"horizon", func(c *app.Config) { c.Horizon = time.Second - 1 }},
		{"max-clock-skew", func(c *app.Config) { c.MaxClockSkew = 0 }},
		{"max-clock-skew", func(c *app.Config) { c.MaxClockSkew = time.Minute + 1 }},
		{"deadline", func(c *app.Config) { c.Deadline = 100*time.Millisecond - 1 }},
		{"deadline", func(c *app.Config) { c.Deadline = time.Minute + 1 }},
	} {
		cfg := app.Default()
		tc.edit(&cfg)
		err := cfg.Validate()
		if tc.want == "" && err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v, want %s mentioned", err, tc.want)
		}
	}
}

func TestLogsSpellDurations(t *testing.T) {
	for json, want := range map[bool]string{false: "in=1.5s", true: `"in":"1.5s"`} {
		cfg := app.Default()
		cfg.LogJSON = json
		var out strings.Builder
		cfg.NewLog(&out).Info("trying again", "in", 1500*time.Millisecond)
		if !strings.Contains(out.String(), want) {
			t.Errorf("JSON %v: %s, want %s", json, out.String(), want)
		}
	}
}

func TestRedactHidesPasswords(t *testing.T) {
	for urls, want := range map[string]string{
		"nats://u:se,cret@h:1":  "nats://xxxxx@h:1",
		"":                      "",
		"nats://127.0.0.1:4222": "nats://127.0.0.1:4222",
		"n1:4222,n2":            "n1:4222,n2",
		"127.0.0.1:4222":        "127.0.0.1:4222",
		"nats://me:secret@n1":   "nats://xxxxx@n1",
		"nats://secret@n1:4222": "nats://xxxxx@n1:4222", // a token
		"me:secret@n1":          "nats://xxxxx@n1",
		"tls://me:secret@n1,nats://n2,wss://x:secret@n3/path": "tls://xxxxx@n1,nats://n2,wss://xxxxx@n3/path",
		"nats://me:se@secret@n1":                              "nats://xxxxx@n1",
		"nats://me:secret%zz@n1":                              "nats://xxxxx@n1",
		"nats://me:secret/secret@n1":                          "nats://xxxxx@n1",
	} {
		if got := app.Redact(urls); got != want {
			t.Errorf("%q is shown as %q, want %q", urls, got, want)
		}
	}
}

// What cannot work at any time ends the start: retried, it would be retried for ever.
func TestWhatCanNeverConnectIsRefusedAtOnce(t *testing.T) {
	for _, set := range []func(*app.Config){
		func(c *app.Config) { c.NATS = "foo://me:hunter2@h" },
		func(c *app.Config) { c.NATS = "nats://a,wss://me:hunter2@b" },
		func(c *app.Config) { c.NATS, c.MySQL = "nats://a", "me:hunter2/x@tcp(h)" },
		func(c *app.Config) { c.NATS, c.MySQL = "nats://a", "me:hunter2" },
		func(c *app.Config) { c.NATS, c.InboxPrefix = "nats://a", "id.replies" },
		func(c *app.Config) { c.NATS, c.InboxPrefix = "nats://a", "$KV.id_segments" },
	} {
		cfg := app.Default()
		set(&cfg)
		if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q, %q, %q: %v", cfg.NATS, cfg.MySQL, cfg.InboxPrefix, err)
		}
	}
	cfg := app.Default()
	for _, urls := range []string{"", "h", "nats://a, TLS://b:4222,c", "ws://a,wss://b", "nats://u:p,w@h"} {
		if cfg.NATS = urls; cfg.Validate() != nil {
			t.Errorf("%q: %v", urls, cfg.Validate())
		}
	}
}

func TestAnEmptyTextCausesNoFaultOfAnotherSetting(t *testing.T) {
	for _, s := range app.Settings() {
		cfg, err := app.Parse(map[string]app.Given{s.Flag: {From: app.FromFlag}})
		if fault := cfg.Validate(); err != nil && fault != nil {
			t.Errorf("--%s is empty: %v", s.Flag, fault)
		}
	}
}
