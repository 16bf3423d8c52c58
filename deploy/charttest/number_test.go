package main

import (
	"os"
	"slices"
	"testing"
)

// The number of each pod comes from natsid, so that a Deployment suffices: see docs/programs.md.
func TestTheDeploymentOfProgramsIsValid(t *testing.T) {
	text, err := os.ReadFile("../../client/outside/number/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var o objects
	if err := o.decode(string(text)); err != nil {
		t.Fatal(err)
	}
	spec := o.Leaf.Deployment.Spec
	shop := spec.Template.Spec.Containers[0]
	if spec.Selector.MatchLabels["app"] != spec.Template.Labels["app"] || env(t, shop)["NATS_URL"] == "" ||
		!slices.Equal(shop.Command[:3], []string{"natsid", "number", "--"}) || len(shop.Command) < 4 {
		t.Errorf("the Deployment is %+v", spec)
	}
}
