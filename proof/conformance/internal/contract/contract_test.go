package contract_test

import (
	"os"
	"strings"
	"testing"

	"github.com/natsid/natsid/proof/conformance/internal/contract"
)

func read(t *testing.T) *contract.Contract {
	file, err := os.ReadFile("../../contract.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := contract.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAMissingAndAnExtraMethodBothFail(t *testing.T) {
	c := read(t)
	for _, profile := range []string{contract.Wire, contract.Full} {
		all := c.MethodsOf(profile)
		if err := c.CheckMethods(profile, all); err != nil || len(all) < 5 {
			t.Errorf("%s: %d methods, %v", profile, len(all), err)
		}
		for want, has := range map[string][]string{
			"it lacks the method " + all[0]: all[1:], "it has the method fly": append(all, "fly"),
		} {
			if err := c.CheckMethods(profile, has); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", profile, err, want)
			}
		}
	}
	if err := c.CheckMethods("half", nil); err == nil {
		t.Error("a third profile passes")
	}
}

func TestAResultIsWhatTheContractSays(t *testing.T) {
	c := read(t)
	for _, tc := range []struct{ method, result, want string }{
		{"next", `{"id":"1001"}`, ""},
		{"next", `{"id":"9223372036854775807"}`, ""},
		{"next", `{"id":1001}`, "not of type id"},
		{"next", `{"id":"0"}`, "not of type id"},
		{"next", `{"id":"9223372036854775808"}`, "not of type id"},
		{"next", `{"id":"1001n"}`, "not of type id"},
		{"next", `{}`, "id is missing"},
		{"next", `{"id":"1","took":5}`, "took is not in the contract"},
		{"next", `"1001"`, "no object"},
		{"next", `{`, "not JSON"},
		{"nextN", `{"runs":[["1","5"],["9","9"]]}`, ""},
		{"nextN", `{"runs":[["1","5","9"]]}`, "not of type run"},
		{"nextN", `{"runs":"1-5"}`, "no array"},
		{"burst", `{"ids":["1","2"],"kinds":{}}`, ""},
		{"burst", `{"ids":[],"kinds":{"Busy":3,"Deadline":1}}`, ""},
		{"burst", `{"ids":[],"kinds":{"Busy":"3"}}`, "not of type int"},
	} {
		err := c.CheckResult(tc.method, []byte(tc.result))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.method, tc.result, err, tc.want)
		}
	}
}

func TestAContractWithATypeThatIsNotCheckedIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"methods":{"next":{"result":{"id":"uuid"}}}}`:   `no type "uuid"`,
		`{"methods":{"next":{"result":{"id":["uuid"]}}}}`: `no type "uuid"`,
		`{"methods":7}`: "contract:",
	} {
		if _, err := contract.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
