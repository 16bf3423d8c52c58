package rights_test

import (
	"testing"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/subjects"
)

// permits returns what nats-server tells of a user who may publish and subscribe to that.
func permits(publish, subscribe []string) rights.Held {
	return rights.Held{Publish: rights.Permission{Allow: publish}, Subscribe: rights.Permission{Allow: subscribe}}
}

func TestMissingRightsAreThoseThatNATSDoesNotPermit(t *testing.T) {
	caller := rights.Of(rights.Caller, rights.Deployment{Namespace: subjects.DefaultNamespace})
	everything := []string{">"}
	for name, tc := range map[string]struct {
		held rights.Held
		want string
	}{
		"a user without permissions": {rights.Held{}, ""},
		"all by name": {
			permits([]string{"id.segment.>", "id.snowflake", "id.snowflake.>"}, []string{"_INBOX.>"}), "",
		},
		"all by pattern": {permits([]string{"id.>"}, []string{">"}), ""},
		"one is not": {
			permits([]string{"id.segment.>", "id.*"}, everything), "publish to id.snowflake.>",
		},
		"only a part is": {
			permits([]string{"id.segment.order", "id.snowflake", "id.snowflake.>"}, everything),
			"publish to id.segment.>",
		},
		"one of each": {
			permits([]string{"id.segment.>", "id.snowflake.>"}, []string{"x"}),
			"publish to id.snowflake; subscribe to _INBOX.>",
		},
		"in a group only": {permits(everything, []string{"_INBOX.> workers"}), "subscribe to _INBOX.>"},
		"one is denied": {
			rights.Held{Publish: rights.Permission{Allow: everything, Deny: []string{"id.snowflake.>"}}},
			"publish to id.snowflake.>",
		},
		"a part is denied": {rights.Held{Publish: rights.Permission{Deny: []string{"id.segment.secret"}}}, ""},
	} {
		if got := caller.Missing(tc.held).String(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAWorkerNeedsOtherRightsForOtherRequests(t *testing.T) {
	worker := rights.Of(rights.Worker, rights.Deployment{Namespace: subjects.DefaultNamespace, InboxPrefix: "_W"})
	all := []string{">"}
	for name, tc := range map[string]struct {
		held rights.Held
		want map[string]string // by mode
	}{
		"a queue group of its own": {permits(all, []string{"id.segment.> natsid", "_W.>"}), map[string]string{
			"segment": "", "snowflake": "subscribe to id.snowflake natsid, id.snowflake.> natsid, id.worker.*",
		}},
		"another queue group": {permits(all, []string{"id.segment.> others", "id.>.x", "_W.>"}), map[string]string{
			"segment": "subscribe to id.segment.> natsid",
		}},
		"answers": {permits([]string{"id.>", "$KV.>", "$JS.>"}, all), map[string]string{
			"segment": "publish to _W.>", "snowflake": "publish to _W.>", "tags": "publish to _W.>",
		}},
		"answers where somebody asked": {
			rights.Held{
				Publish: rights.Permission{Allow: []string{"id.>", "$KV.>", "$JS.>"}}, Responses: new(struct{}),
			},
			map[string]string{"segment": "", "snowflake": "", "tags": ""},
		},
		"marks that are only read": {
			permits([]string{"id.>", "_W.>", "$JS.>", "$KV.id_history.>", "$KV.id_workers.>"}, all), map[string]string{
				"segment": "publish to $KV.id_segments.>", "snowflake": "", "tags": "publish to $KV.id_segments.>",
			},
		},
		"no alarms": {rights.Held{Publish: rights.Permission{Deny: []string{"id.alarm.*", "$SYS.>"}}},
			map[string]string{"segment": "", "snowflake": "", "tags": ""}},
	} {
		for mode, want := range tc.want {
			if got := worker.Missing(tc.held).For(mode).String(); got != want {
				t.Errorf("%s: %s lacks %q, want %q", name, mode, got, want)
			}
		}
	}
}
