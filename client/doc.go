// Package client requests IDs from natsid over NATS.
//
// A call asks again while that can help: after a refusal that another worker may
// not repeat, after silence, after a lost connection. It ends with its context. A
// retry is safe: at worst some IDs are never used.
package client
