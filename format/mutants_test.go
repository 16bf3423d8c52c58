//go:build !race

package format_test

import (
	"regexp"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
)

// mutants break the laws of formats, each in one way.
var mutants = []mutant.Mutant{
	{Name: "the check digit is that of the last digit", Edits: []mutant.Edit{
		mutant.Replace("sum", "v[check] = f.sum(0, p.value(c, false))"),
		mutant.Replace("read-sum", "if p.kind != check { r.v[check] = 0 }; r.v[check] = r.sum(r.v[check], digit)")}},
	{Name: "the check digit is that of the number alone", Edits: []mutant.Edit{
		mutant.Replace("sum", "if p.kind >= number { v[check] = f.sum(v[check], p.value(c, false)) }"),
		mutant.Replace("read-sum", "if p.kind >= number { r.v[check] = r.sum(r.v[check], digit) }")}},
	{Name: "a check digit is read whatever it is", Edits: []mutant.Edit{
		mutant.Replace("agree", `if r.v[p.kind] != own[p.kind] && p.kind != check {
			return 0, fault(r.places[p.kind], "wrong %s: it is not that of the other digits", names[p.kind])
		}`)}},
	{Name: "a date or business of a snowflake may be another's", Edits: []mutant.Edit{
		mutant.Replace("agree", `if r.v[p.kind] != own[p.kind] && p.kind == check {
			return 0, fault(r.places[p.kind], "wrong %s: it is not that of the other digits", names[p.kind])
		}`)}},
	{Name: "days that do not exist are days", Edits: []mutant.Edit{mutant.Delete("exists")}},
	{Name: "the bound of a part does not hold for writing", Edits: []mutant.Edit{
		mutant.Replace("range", `if v[p.kind] < p.base { return v, "below" }`)}},
	{Name: "the bound of a part does not hold for reading", Edits: []mutant.Edit{mutant.Delete("max")}},
	{Name: "text behind the end is ignored", Edits: []mutant.Edit{mutant.Delete("end")}},
	{Name: "zeros are ignored", Edits: []mutant.Edit{mutant.Delete("zero")}},
	{Name: "digits may be missing", Edits: []mutant.Edit{mutant.Delete("width")}},
	{Name: "reading is always lenient", Edits: []mutant.Edit{
		mutant.Replace("lenient", "digit := p.value(r.text[r.at], true)")}},
	{Name: "a part may be behind the check digit", Edits: []mutant.Edit{
		mutant.Replace("check-last", `case p.places[check] > 0 && p.side == 0: return ""`)}},
	{Name: "a day needs no month", Edits: []mutant.Edit{mutant.Delete("coarser")}},
	{Name: "a number grows though a digit is beside it", Edits: []mutant.Edit{
		mutant.Replace("grows", "case true: v.grows = true")}},
	{Name: "a width is a bound nowhere", Edits: []mutant.Edit{mutant.Delete("bound")}},
	{Name: "a letter that only lenient reading takes is no digit beside a number", Edits: []mutant.Edit{
		mutant.Replace("beside", "v.grows = v.grows && v.value(c, false) < 0")}},
	{Name: "all days have one mask", Edits: []mutant.Edit{mutant.Replace("tweak", "return f.tag")}},
	{Name: "a mask has eight rounds", Edits: []mutant.Edit{mutant.Replace("rounds", "const rounds = 8")}},
}

func TestMutants(t *testing.T) {
	mutant.Suite{
		Mutants: mutants,
		Args:    []string{"-test.skip=^TestMutants$", "-test.timeout=1m"},
		Finding: regexp.MustCompile(`(?m)^\s*\w+_test.go:\d+: (.*)$`),
	}.Run(t)
}
