// Package contract reads contract.json, and checks an adapter's methods and results against it.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/natsid/natsid/subjects"
)

// The profiles of adapters.
const (
	Wire = "wire" // requests without a client: no retries, no merging
	Full = "full" // a client
)

// A Contract is the methods of adapters and the kinds of errors.
type Contract struct {
	Version int
	Kinds   map[string]string
	Methods map[string]Method
}

// A Method is one method of an adapter.
type Method struct {
	Profiles []string
	Says     string
	Params   map[string]any
	Full     []string // parameters for profile full only
	Result   map[string]any
}

// Parse reads a contract.
func Parse(file []byte) (*Contract, error) {
	var c Contract
	if err := json.Unmarshal(file, &c); err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	for name, m := range c.Methods {
		if err := known(m.Result); err != nil {
			return nil, fmt.Errorf("contract: the result of %s: %w", name, err)
		}
	}
	return &c, nil
}

// known returns an error unless all types that a type is made of are checked.
func known(typ any) error {
	switch typ := typ.(type) {
	case []any:
		return known(typ[0])
	case map[string]any:
		for name, of := range typ {
			if err := known(of); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	case string:
		if checks[typ] == nil {
			return fmt.Errorf("no type %q is known", typ)
		}
	}
	return nil
}

// MethodsOf returns the methods of a profile, sorted.
func (c *Contract) MethodsOf(profile string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Methods)) {
		if slices.Contains(c.Methods[name].Profiles, profile) {
			names = append(names, name)
		}
	}
	return names
}

// CheckMethods returns an error that names each method of the profile that has lacks, and each that is not of it.
func (c *Contract) CheckMethods(profile string, has []string) error {
	want := c.MethodsOf(profile)
	if want == nil {
		return fmt.Errorf("the profile is %q, want %s or %s", profile, Wire, Full)
	}
	var faults []error
	for _, name := range want {
		if !slices.Contains(has, name) {
			faults = append(faults, fmt.Errorf("it lacks the method %s", name))
		}
	}
	for _, name := range has {
		if !slices.Contains(want, name) {
			faults = append(faults, fmt.Errorf("it has the method %s, which profile %s has not", name, profile))
		}
	}
	return errors.Join(faults...)
}

// CheckResult returns an error unless a result is what the contract says of the method.
func (c *Contract) CheckResult(method string, result json.RawMessage) error {
	var value any
	d := json.NewDecoder(bytes.NewReader(result))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return fmt.Errorf("the result of %s is not JSON: %w", method, err)
	}
	if err := check(c.Methods[method].Result, value); err != nil {
		return fmt.Errorf("the result of %s: %w", method, err)
	}
	return nil
}

// check checks a value against a type of the contract: a name, an array of one type, or an object of types.
func check(typ, value any) error {
	switch typ := typ.(type) {
	case string:
		if !checks[typ](value) {
			return fmt.Errorf("%v (%T) is not of type %s", value, value, typ)
		}
		return nil
	case []any:
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%v is no array", value)
		}
		for _, element := range list {
			if err := check(typ[0], element); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		return checkObject(typ, value)
	}
	return fmt.Errorf("the contract has a type that is %T", typ)
}

func checkObject(typ map[string]any, value any) error {
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no object", value)
	}
	if of, isMap := typ["kind"]; isMap && len(typ) == 1 { // any kinds of errors as names
		typ = map[string]any{}
		for name := range object {
			typ[name] = of
		}
	}
	for name, of := range typ {
		field, there := object[strings.TrimSuffix(name, "?")]
		if !there && strings.HasSuffix(name, "?") {
			continue
		}
		if !there {
			return fmt.Errorf("%s is missing", name)
		}
		if err := check(of, field); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range object {
		if typ[name] == nil && typ[name+"?"] == nil {
			return fmt.Errorf("%s is not in the contract", name)
		}
	}
	return nil
}

// checks report whether a value is of a named type.
var checks = map[string]func(any) bool{
	"run": func(v any) bool {
		ends, ok := v.([]any)
		return ok && len(ends) == 2 && isID(ends[0]) && isID(ends[1])
	},
	"id":     isID,
	"text":   func(v any) bool { _, ok := v.(string); return ok },
	"number": func(v any) bool { _, ok := v.(json.Number); return ok },
	"int":    isInt,
}

func isInt(value any) bool {
	n, ok := value.(json.Number)
	_, err := strconv.ParseInt(n.String(), 10, 64)
	return ok && err == nil
}

func isID(value any) bool {
	text, ok := value.(string)
	id, err := subjects.ParseID(text)
	return ok && err == nil && id > 0
}
