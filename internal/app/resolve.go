package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/natscontext"
)

// Resolve returns the given settings, and those of the nats context that they name, which have lower precedence. Of
// settings that exclude each other, it keeps the one with the highest source. said explains each dropped setting in a
// sentence without values.
func Resolve(given map[string]Given) (all map[string]Given, said []string, err error) {
	all = maps.Clone(given)
	if name := given["context"].Text; name != "" {
		c, err := natscontext.Read(name)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", place("context", given), err)
		}
		said = addContext(all, name, c)
	}
	for _, ways := range exclusive() {
		more, err := choose(all, ways)
		if err != nil {
			return nil, nil, err
		}
		said = append(said, more...)
	}
	return all, append(said, chooseUser(all)...), nil
}

// addContext adds the settings of a context that were not given elsewhere.
func addContext(all map[string]Given, name string, c natscontext.Context) (said []string) {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	for _, f := range []struct{ flag, field, text string }{
		{"nats", "url", c.URL}, {"user", "user", c.User}, {"password", "password", c.Password},
		{"token", "token", c.Token}, {"creds", "creds", c.Creds}, {"nkey", "nkey", c.NKey},
		{"tlscert", "cert", c.Cert}, {"tlskey", "key", c.Key}, {"tlsca", "ca", c.CA},
		{"inbox-prefix", "inbox_prefix", c.InboxPrefix},
		{"js-domain", "jetstream_domain", c.JSDomain}, {"js-prefix", "jetstream_api_prefix", c.JSPrefix},
	} {
		theirs := Given{Text: f.text, From: FromContext, Place: f.field + " of context " + name}
		switch mine, ok := all[f.flag]; {
		case f.text == "":
		case !ok:
			all[f.flag] = theirs
		case mine.Text != f.text:
			said = append(said, gaveWay(theirs.Place, place(f.flag, all)))
		}
	}
	return said
}

// A way is the flags that express one thing together.
type way []string

// exclusive returns sets of ways; only one way of each set can be used.
func exclusive() [][]way {
	sets := [][]way{
		{{"creds"}, {"nkey"}}, // the key that signs
		{{"user", "password", "password-file"}, {"token", "token-file"}},
		{{"js-domain"}, {"js-prefix"}},
	}
	for _, s := range settings {
		if s.file != nil {
			sets = append(sets, []way{{s.Flag}, {s.Flag + "-file"}})
		}
	}
	return sets
}

// first returns the flag of this way whose source is the highest, "" if none was given.
func (w way) first(all map[string]Given) (flag string) {
	for _, f := range w {
		if g := all[f]; g.Text != "" && (flag == "" || g.From > all[flag].From) {
			flag = f
		}
	}
	return flag
}

// choose keeps the way of the highest source, and removes the others from all.
func choose(all map[string]Given, ways []way) (said []string, err error) {
	best := ""
	for _, w := range ways {
		f := w.first(all)
		switch {
		case f == "":
		case best == "" || all[f].From > all[best].From:
			best = f
		case all[f].From == all[best].From && all[f].From != FromContext: // within a context the first way counts
			return nil, fmt.Errorf("%s and %s exclude each other: give one",
				place(best, all), place(f, all))
		}
	}
	for _, w := range ways {
		if f := w.first(all); f != "" && !slices.Contains(w, best) {
			said = append(said, gaveWay(place(f, all), place(best, all)))
			for _, f := range w {
				delete(all, f)
			}
		}
	}
	return said, nil
}

// chooseUser keeps either the user in the URLs of NATS or the user in a setting, whichever has the higher source.
func chooseUser(all map[string]Given) (said []string) {
	f := way{"user", "token", "token-file"}.first(all)
	urls := all["nats"]
	if f == "" || !strings.Contains(urls.Text, "@") {
		return nil
	}
	inURL := "the user in " + place("nats", all)
	if all[f].From <= urls.From {
		said = append(said, gaveWay(place(f, all), inURL))
		for _, f := range []string{"user", "password", "password-file", "token", "token-file"} {
			delete(all, f)
		}
		return said
	}
	list := strings.Split(urls.Text, ",")
	for i, u := range list {
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, ok := strings.Cut(u[:at], "://")
			list[i] = u[at+1:]
			if ok {
				list[i] = scheme + "://" + list[i]
			}
		}
	}
	said = append(said, gaveWay(inURL, place(f, all)))
	urls.Text = strings.Join(list, ",")
	all["nats"] = urls
	return said
}

// gaveWay returns the sentence that one setting takes precedence over another.
func gaveWay(weaker, stronger string) string { return stronger + " takes precedence over " + weaker }

// place returns where a setting was given, as people wrote it, or the flag.
func place(flag string, all map[string]Given) string { return cmp.Or(all[flag].Place, "--"+flag) }
