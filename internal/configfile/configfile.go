// Package configfile reads files that an operator wrote: those of secrets, and configuration files, which are YAML
// mappings of names to values. It does not know which names are valid.
package configfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Clean removes what editors and env-files add to a text: a byte order mark before it, and CR and LF after it.
func Clean(text string) string { return strings.TrimRight(strings.TrimPrefix(text, "\ufeff"), "\r\n") }

// maxFile is the size limit of a file in bytes, far more than all settings need.
const maxFile = 1 << 20

// Read returns the text of a file after [Clean]. A file above 1 MiB is an error.
func Read(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes: is it the right file?", name, maxFile)
	}
	return Clean(string(text)), err
}

// Secret returns the text of a file that holds a secret, after [Clean]. An empty file is an error. Errors show the
// file's name, never its text.
func Secret(name string) (string, error) {
	text, err := Read(name)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("%s is empty", name)
	}
	return text, err
}

// An Entry is one name with the text of its value.
type Entry struct {
	Name, Text string
	Line       int
}

// A Fault says what is wrong on a line. It contains no value, which may be a secret.
type Fault struct {
	Line int
	Text string
}

// Parse returns the entries in the text of a file, in order, and every fault in it. A second entry of a name is a
// fault. The text of a list is its items, separated by commas.
func Parse(text string) ([]Entry, []Fault) {
	in := yaml.NewDecoder(strings.NewReader(text))
	var doc, next yaml.Node
	err := in.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil // an empty file sets nothing
	}
	if err != nil {
		return nil, []Fault{syntax(text, err)}
	}
	if err := in.Decode(&next); err == nil {
		return nil, []Fault{{next.Line, "a second document begins: want one"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, []Fault{syntax(text, err)}
	}
	root := doc.Content[0]
	switch {
	case root.Tag == "!!null": // comments only
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, []Fault{{root.Line, "want lines of the form name: value"}}
	}
	return entries(root.Content)
}

// entries reads a mapping, whose nodes are a name, its value, the next name, and so on.
func entries(nodes []*yaml.Node) (all []Entry, faults []Fault) {
	lines := map[string]int{}
	for i := 0; i+1 < len(nodes); i += 2 {
		name, line := nodes[i].Value, nodes[i].Line
		if nodes[i].Kind != yaml.ScalarNode {
			faults = append(faults, Fault{line, "want the name of a setting before the colon"})
			continue
		}
		if first, twice := lines[name]; twice {
			faults = append(faults, Fault{line, fmt.Sprintf("%s is given on line %d too: keep one", name, first)})
			continue
		}
		lines[name] = line
		text, fault := value(nodes[i+1])
		if fault != "" {
			faults = append(faults, Fault{line, name + fault})
			continue
		}
		all = append(all, Entry{name, text, line})
	}
	return all, faults
}

// value returns the text of a value, and what is wrong with it, "" if nothing is.
func value(n *yaml.Node) (text, fault string) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0:
		return "", ": " + unquoted
	case n.Kind == yaml.SequenceNode:
		var items []string
		for _, item := range n.Content {
			text, fault := value(item)
			if fault != "" || item.Kind != yaml.ScalarNode {
				return "", ": want one text for each item of the list"
			}
			items = append(items, text)
		}
		return strings.Join(items, ","), ""
	case n.Kind != yaml.ScalarNode:
		return "", ": want a value, not names and values below it"
	case n.Tag == "!!null":
		return "", ` has no value: write "" if it is to be empty, or leave the line out`
	}
	return n.Value, ""
}

// unquoted is the fault of a value that YAML reads as an anchor, an alias, or a tag.
const unquoted = "a value that begins with *, & or ! needs quotes"

var (
	atLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)
	anchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
)

// tabbed matches the errors that the YAML parser may return for a tab.
var tabbed = regexp.MustCompile(`tab character|cannot start any token`)

// syntax returns the fault for an error of the YAML parser. It hides the name of an alias, since an unquoted password
// that begins with * looks like one.
func syntax(text string, err error) Fault {
	if m := anchor.FindStringSubmatch(err.Error()); m != nil {
		before, _, _ := strings.Cut(text, "*"+m[1])
		return Fault{1 + strings.Count(before, "\n"), unquoted}
	}
	line, why := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := atLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1]) // only digits match; too many of them give the largest int
		why = m[2]
	}
	lines := strings.Split(text, "\n")
	if line <= len(lines) && tabbed.MatchString(why) && strings.Contains(lines[line-1], "\t") {
		why = "a tab cannot stand before a name or a value: write blanks"
	}
	return Fault{line, plain.Replace(why)}
}

// plain says what the YAML parser means.
var plain = strings.NewReplacer(
	"mapping values are not allowed in this context", "a name has blanks before it, or a value with a colon no quotes",
	"found unexpected end of stream", "a quote has no end")
