package rights_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/subjects"
)

func of(role rights.Role, change func(*rights.Deployment)) (publish, subscribe []string) {
	d := rights.Deployment{Namespace: subjects.DefaultNamespace, MakesBuckets: true, Repairs: true}
	change(&d)
	all := rights.Of(role, d)
	return rights.Texts(all.Publish), rights.Texts(all.Subscribe)
}

func TestNoRightIsGivenTwiceOrWithoutAReason(t *testing.T) {
	for _, role := range rights.Roles() {
		all := rights.Of(role, rights.Deployment{Namespace: "ns", MakesBuckets: true, Repairs: true,
			Stamps: rights.Pipeline{From: "A", To: "B", Into: "b.>", DeadLetter: "dead", Creates: true}})
		for _, list := range [][]rights.Right{all.Publish, all.Subscribe} {
			seen := map[string]bool{}
			for _, r := range list {
				if seen[r.String()] {
					t.Errorf("%s: %s twice", role, r)
				}
				seen[r.String()] = true
				if r.Why == "" || r.Why != strings.ToLower(r.Why[:1])+r.Why[1:] || strings.HasSuffix(r.Why, ".") {
					t.Errorf("%s: %s is for %q, want a clause", role, r, r.Why)
				}
			}
		}
	}
}

func TestRightsFollowTheDeployment(t *testing.T) {
	for name, tc := range map[string]struct {
		role             rights.Role
		change           func(*rights.Deployment)
		publishes, never []string
		hears            []string
	}{
		"a namespace": {
			rights.Worker, func(d *rights.Deployment) { d.Namespace = "shop" },
			[]string{"$KV.shop_segments.>", "shop.alarm.*", "_INBOX.>"}, []string{"id."},
			[]string{"shop.segment.> natsid"},
		},
		"an inbox prefix": {
			rights.Caller, func(d *rights.Deployment) { d.InboxPrefix = "_INBOX.shop" },
			[]string{"id.segment.>"}, []string{"_INBOX.>"}, []string{"_INBOX.shop.>"},
		},
		"a worker's inbox prefix elsewhere": {
			rights.Worker, func(d *rights.Deployment) { d.InboxPrefix, d.ReplyTo = "_W", []string{"_A", "_INBOX.b"} },
			[]string{"_INBOX.>", "_W.>", "_A.>"}, []string{"_INBOX.b"}, []string{"_W.>"},
		},
		"a domain": {
			rights.Worker, func(d *rights.Deployment) { d.JSDomain = "hub" },
			[]string{"$JS.hub.API.STREAM.INFO.KV_id_history", "$JS.hub.API.$KV.id_history.>"},
			[]string{"$JS.API.", "$KV."}, nil,
		},
		"a prefix": {
			rights.Worker, func(d *rights.Deployment) { d.JSPrefix = "JS.store" },
			[]string{"JS.store.STREAM.CREATE.KV_id_history", "JS.store.CONSUMER.MSG.NEXT.KV_id_workers.*"},
			[]string{"$JS.", "$KV."}, nil,
		},
		"buckets that workers make, and never change": {
			rights.Worker, func(*rights.Deployment) {},
			[]string{"$JS.API.STREAM.CREATE.KV_id_history"}, []string{"$JS.API.STREAM.UPDATE"}, nil,
		},
		"buckets that exist": {
			rights.Worker, func(d *rights.Deployment) { d.MakesBuckets = false },
			nil, []string{"$JS.API.STREAM.CREATE"}, nil,
		},
		"an operator who does not repair": {
			rights.Operator, func(d *rights.Deployment) { d.Repairs = false },
			[]string{"id.tag.create", "$JS.API.STREAM.MSG.GET.KV_id_segments"},
			[]string{"$KV.", "id.worker.*"}, []string{"id.alarm.*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			publish, subscribe := of(tc.role, tc.change)
			for _, want := range tc.publishes {
				if !slices.Contains(publish, want) {
					t.Errorf("may not publish to %s, only to %q", want, publish)
				}
			}
			for _, beginning := range tc.never {
				for _, s := range slices.Concat(publish, subscribe) {
					if strings.HasPrefix(s, beginning) {
						t.Errorf("may use %s", s)
					}
				}
			}
			for _, want := range tc.hears {
				if !slices.Contains(subscribe, want) {
					t.Errorf("may not subscribe to %s, only to %q", want, subscribe)
				}
			}
		})
	}
}
