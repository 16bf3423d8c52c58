//go:build linux

package main

import (
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
)

// networkFaults strike the links between the first worker and NATS.
func networkFaults() []fault {
	return []fault{
		{
			name:    "acks-dropped",
			summary: "for 10 s no acknowledgement of a write reaches one worker, though the writes land",
			fleet:   proxied, inject: dropAcks, lasts: 10 * time.Second,
			losses: []loss{untilRelayed, betweenLeaders}, unnoticed: true,
			area: onNetwork, brief: true, single: true,
		},
		{
			name: "network-slow", summary: "for 10 s everything between one worker and NATS takes 150 ms more each way",
			fleet: proxied, inject: slow, lasts: 10 * time.Second,
			losses: []loss{storeAway}, area: onNetwork, single: true,
		},
		{
			name: "network-cut", summary: "one worker's connections are cut, and refused for 5 s",
			fleet: proxied, inject: cut, lasts: 5 * time.Second,
			losses: []loss{lostInFlight}, area: onNetwork, single: true,
		},
		{
			name:    "network-partition",
			summary: "for 15 s nothing passes between one worker and NATS, and no connection is closed",
			fleet:   proxied, inject: partition, lasts: 15 * time.Second,
			losses: []loss{untilDetected, afterResume}, area: onNetwork, single: true,
		},
		{
			name: "network-partition-40s", summary: "the same for 40 s, longer than the lease TTL",
			fleet: proxied, inject: partition, lasts: 40 * time.Second,
			losses: []loss{untilDetected, afterResume}, single: true,
		},
	}
}

func dropAcks(t *trial) func() {
	t.eachProxy(func(p *natsproxy.Proxy) { p.DropAcks(natsproxy.All) })
	return func() {
		var dropped int64
		for _, p := range t.proxies {
			p.DropAcks(nil)
			dropped += p.Dropped()
		}
		if t.logf("%d acknowledgements were dropped", dropped); dropped == 0 {
			t.violationIfAlone("no acknowledgement was dropped")
		}
	}
}

func slow(t *trial) func() {
	t.eachProxy(func(p *natsproxy.Proxy) { p.Delay(150 * time.Millisecond) })
	return func() { t.eachProxy(func(p *natsproxy.Proxy) { p.Delay(0) }) }
}

func cut(t *trial) func() {
	t.eachProxy(func(p *natsproxy.Proxy) { p.Refuse(true); p.Cut() })
	return func() { t.eachProxy(func(p *natsproxy.Proxy) { p.Refuse(false) }) }
}

func partition(t *trial) func() {
	t.eachProxy(func(p *natsproxy.Proxy) { p.Stall(true) })
	return func() { t.eachProxy(func(p *natsproxy.Proxy) { p.Stall(false) }) }
}
