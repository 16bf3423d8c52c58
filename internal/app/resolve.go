package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/natscontext"
)

// Resolve returns the given settings, by flag, and those of the nats context that they name. Of settings that exclude
// each other, it keeps the setting of the highest source. said has a sentence about each dropped setting, without its
// value. After an error, all may still have settings that exclude each other.
func Resolve(given map[string]Given) (all map[string]Given, said []string, err error) {
	all = maps.Clone(given)
	if name := given["context"].Text; name != "" {
		c, err := natscontext.Read(name)
		if err != nil {
			return all, nil, fmt.Errorf("%s: %w", place("context", given), err)
		}
		c["url"] = cmp.Or(c["url"], nats.DefaultURL)
		said = addContext(all, name, c)
	}
	urls := all["nats"]
	hasUser := strings.Contains(urls.Text, "@")
	if hasUser {
		all[inURL] = Given{Text: "@", From: urls.From, Place: "the user in " + place("nats", all)}
	}
	for _, ways := range exclusive() {
		err = errors.Join(err, choose(all, ways, &said))
	}
	if _, stays := all[inURL]; hasUser && !stays {
		urls.Text = regexp.MustCompile(`(\w+://|,|^)[^,]*@`).ReplaceAllString(urls.Text, "$1")
		all["nats"] = urls
	}
	delete(all, inURL)
	return all, said, err
}

// addContext adds the settings of a context to all. A setting that all has already keeps its value.
func addContext(all map[string]Given, name string, c map[string]string) (said []string) {
	for _, s := range settings {
		theirs := Given{Text: c[s.context], From: FromContext, Place: s.context + " of context " + name}
		switch mine, ok := all[s.Flag]; {
		case theirs.Text == "":
		case !ok:
			all[s.Flag] = theirs
		case mine.Text != theirs.Text:
			said = append(said, gaveWay(theirs.Place, place(s.Flag, all)))
		}
	}
	return said
}

// inURL stands, in a [way] of flags, for the user and password in the URLs of --nats.
const inURL = "user in --nats"

// A way is one way to give something, such as a user: the flags that belong together, as those of user and password.
type way []string

// exclusive returns sets of ways to give the same thing. Only one way of each set can be used.
func exclusive() [][]way {
	sets := [][]way{
		{{"creds"}, {"nkey"}}, // the two ways to give the key that signs
		{{"user", "password", "password-file"}, {"token", "token-file"}},
		{{inURL}, {"user", "password", "password-file", "token", "token-file"}},
		{{"js-domain"}, {"js-prefix"}},
	}
	for _, s := range settings {
		if s.file != nil {
			sets = append(sets, []way{{s.Flag}, {s.Flag + "-file"}})
		}
	}
	return sets
}

// first returns the flag of this way that was given by the highest source, "" if no flag was given.
func (w way) first(all map[string]Given) (flag string) {
	for _, f := range w {
		if g := all[f]; g.Text != "" && (flag == "" || g.From > all[flag].From) {
			flag = f
		}
	}
	return flag
}

// choose keeps, in all, only that of the ways (groups of flags) which the highest source gives. If that source gives
// two ways, choose returns an error, unless the source is a context, or the first way is a user in the URLs: then the
// first way stays.
func choose(all map[string]Given, ways []way, said *[]string) error {
	from := func(w way) Source { return all[w.first(all)].From }
	slices.SortStableFunc(ways, func(v, w way) int { return cmp.Compare(from(w), from(v)) })
	best := ways[0].first(all)
	for _, w := range ways[1:] {
		f := w.first(all)
		if f == "" {
			continue
		}
		if from(w) == all[best].From && from(w) != FromContext && best != inURL {
			return fmt.Errorf("%s and %s exclude each other: give one", place(best, all), place(f, all))
		}
		*said = append(*said, gaveWay(place(f, all), place(best, all)))
		for _, f := range w {
			delete(all, f)
		}
	}
	return nil
}

// gaveWay returns the sentence about a setting that was dropped.
func gaveWay(weaker, stronger string) string { return stronger + " takes precedence over " + weaker }

// place returns where a setting was given, for messages; the flag if no place is known.
func place(flag string, all map[string]Given) string { return cmp.Or(all[flag].Place, "--"+flag) }
