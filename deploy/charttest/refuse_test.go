package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What cannot be meant ends `helm template`, with a sentence or with the place in the values.
func TestBadValuesAreRefused(t *testing.T) {
	c := loadChart(t)
	for _, tc := range []struct {
		law, values string
		want        string // part of the error
	}{
		{"no NATS", "", "natsid needs a NATS with JetStream: set nats.url, such as nats://nats.example.com:4222, or " +
			"nats.release, the release of the official nats chart in this cluster"},
		{"two of them", "nats: {url: 'nats://n1', release: nats}", "exclude each other: give one"},
		{"a password in the URL", "nats: {url: 'nats://a:b@n1'}", "name a Secret in nats.auth"},
		{"a token as a user", "nats: {url: 'nats://n1', auth: {user: s3cret}}", "auth.user needs auth.password"},

		{"a scheme that is not of NATS", "nats: {url: 'http://n1'}", "/nats/url"},
		{"no scheme", "nats: {url: 'n1:4222'}", "/nats/url"},
		{"a misspelt value", "replica: 3", "'replica'"},
		{"a misspelt value within", "image: {repo: natsid}", "'repo'"},
		{"no worker", "replicas: 0", "/replicas"},
		{"workers in words", "replicas: three", "/replicas"},
		{"a misspelt setting", "settings: {max-bach: 1}", "'max-bach'"},
		{"a secret among the settings", "settings: {mysql: 'leaf:password@tcp(db)/leaf'}", "'mysql'"},
		{"a password among the settings", "settings: {password: p}", "'password'"},
		{"a setting beyond its range", "settings: {max-batch: 1000001}", "/settings/max-batch"},
		{"a setting that is set and empty", "settings: {epoch: ''}", "/settings/epoch"},
		{"a number without unit", "settings: {deadline: 2}", "/settings/deadline"},
		{"a secret in plain", "nats: {auth: {password: p}}", "/nats/auth/password"},
		{"a Secret without key", "nats: {auth: {creds: {secret: worker}}}", "'key'"},
		{"a DSN in plain", "mysql: {dsn: 'leaf:password@tcp(db)/leaf'}", "/mysql/dsn"},
		{"an authority of no database", "mysql: {ca: {secret: a, key: b}}", "'dsn'"},
		{"a tag for a digest", "image: {digest: latest}", "/image/digest"},
		{"a port beyond all", "http: {port: 70000}", "/http/port"},
		{"too little time for a drain", "terminationGracePeriodSeconds: 10", "/terminationGracePeriodSeconds"},
		{"volumes that pods share", "persistence: {accessMode: ReadWriteMany}", "/persistence/accessMode"},
		{"another word", "antiAffinity: soft", "/antiAffinity"},
		{"no disruption ever", "podDisruptionBudget: {maxUnavailable: 0}", "/podDisruptionBudget/maxUnavailable"},
	} {
		t.Run(tc.law, func(t *testing.T) {
			values := tc.values
			var given map[string]any
			if err := yaml.Unmarshal([]byte(values), &given); err != nil {
				t.Fatal(err)
			}
			if values != "" && given["nats"] == nil {
				values += "\n" + someURL
			}
			_, err := tryRender(c, values)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want an error with %q", err, tc.want)
			}
		})
	}
}
