FUZZTIME ?= 1m
FROM ?= 1
WHICH ?= both
SIMULATED = $(if $(filter segment both,$(WHICH)),./segment/simulation ./internal/registry/lineage) $(if $(filter workerid both,$(WHICH)),./workerid)
MEMORY = $(firstword $(wildcard /dev/shm) $(TMPDIR) /tmp)
COSIGN = github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# As releases are built, so that what is not raced is compiled once for all.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath

.PHONY: help deps quick test stress-test faults upgrade-test kube-test sim model lint format vet staticcheck fuzz bench build release release-check cosign run clean
# `make -j deps test` must not start the tests before their needs are there.
.NOTPARALLEL:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## Install what the tests need, if it is missing: a C compiler, MariaDB, PostgreSQL, Go and npm modules
	@scripts/deps

# What tests sync to the disk, they sync to memory where that is a file system.
quick: format vet staticcheck ## Check what is fast to check, in under a minute: lint and the tests with -short
	@dir=$$(mktemp -d "$(MEMORY)/natsid-XXXXXX") && trap 'rm -rf "$$dir"' EXIT && \
	GOTMPDIR=$${TMPDIR:-/tmp} TMPDIR=$$dir go test -short -vet=off -p 10 -parallel 6 -timeout 5m ./...

test: ## Run all tests with the race detector; installs nothing
	@scripts/test

stress-test: ## Run all tests N times (10) while other processes keep the CPUs busy
	scripts/stress $(or $(N),10)

faults: ## Inject faults into real processes, and write docs/faults.md and .csv (30 min; Linux)
	go run ./proof/faults -parallel 2 -for 2m -markdown docs/faults.md

upgrade-test: ## Go from OLD, a program or commit, to this version and back, under load (2 min; Linux; rests until v0.1.0-rc2)
	go run ./proof/faults -parallel 1 -old $(or $(OLD),$(shell tail -n 1 deploy/release/last-candidate)) 'upgrade-*'

# It compiles Kubernetes, so that it is no part of `make test`, nor are its modules of `make deps`.
kube-test: ## Apply the chart to a real Kubernetes without nodes, and roll it (3 min; half an hour the first time; Linux)
	scripts/deps kube
	go -C deploy/kubetest mod tidy -diff
	CGO_ENABLED=0 go -C deploy/kubetest vet -tags kubernetes ./...
	CGO_ENABLED=0 go -C deploy/kubetest test -tags kubernetes -vet=off -count=1 -v -timeout 90m ./...

sim: ## Simulate N schedules (100000) from seed FROM (1) of WHICH (segment, workerid, both)
	@case "$(WHICH)" in segment|workerid|both) ;; *) echo "WHICH must be segment, workerid or both, not $(WHICH)" >&2; exit 1;; esac
	go test -p 1 -count=1 -timeout 0 -v -run '^TestSimulation$$' $(SIMULATED) -args -sim.n=$(or $(N),100000) -sim.from=$(FROM)

model: ## Check the models of the laws in docs/models with spin: 2 min
	scripts/model

# The tests of the main folder are about the text: imports, package comments, width,
# documents that are made from the code.
lint: format vet staticcheck ## gofmt, go vet, staticcheck, go.mod tidy, imports, documents, scripts, govulncheck
	go test .
	go mod tidy -diff
	go -C proof/bench vet ./...
	go -C proof/bench mod tidy -diff
	go -C deploy vet ./...
	go -C deploy mod tidy -diff
	go -C deploy/charttest vet ./...
	go -C deploy/charttest mod tidy -diff
	go -C client/outside vet ./...
	go -C client/outside mod tidy -diff
	go -C proof/browser vet ./...
	go -C proof/browser mod tidy -diff
	go -C deploy/release vet ./...
	go -C deploy/release mod tidy -diff
	@for script in scripts/* .ci/run deploy/package/p*; do sh -n $$script || exit 1; done
	@if command -v shellcheck >/dev/null; then shellcheck scripts/* .ci/run deploy/package/p*; else echo "lint: no shellcheck here: scripts are checked for their syntax only"; fi
	@scripts/vulncheck

format:
	@out=$$(gofmt -l .) || exit 1; [ -z "$$out" ] || { echo "not gofmt'ed, run gofmt -w on:" $$out >&2; exit 1; }

vet:
	go vet ./...

staticcheck:
	go run $(STATICCHECK) ./...

fuzz: ## Run each fuzz target for FUZZTIME (1m)
	@set -e; pkgs=$$(go list ./...); \
	for pkg in $$pkgs; do \
		names=$$(go test -list '^Fuzz' $$pkg); \
		for name in $$names; do case $$name in Fuzz*) \
			echo "== $$pkg $$name"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg;; \
		esac; done; \
	done

bench: ## Measure requests, clients, strict tags, overloads and stages, beside bare NATS and others (25 min)
	go -C proof/bench run .
	go -C proof/bench run . -for 1s client
	go -C proof/bench run . -for 400ms -repeats 5 strict
	go -C proof/bench run . -callers 128 -for 1s -repeats 3 counter
	go -C proof/bench run . -for 20s overload
	go -C proof/bench run . -repeats 5 stamp
	go -C proof/bench run . -repeats 9 -for 1s leaf

build: ## Build the static binary ./natsid
	CGO_ENABLED=0 go build -trimpath -o natsid .

release: ## Build a release into dist: VERSION, by default the tag, signed with KEY, an SSH key
	go -C deploy/release run . -out "$(CURDIR)/dist" $(if $(VERSION),-version "$(VERSION)") $(if $(KEY),-key "$(abspath $(KEY))")

release-check: ## Build the release of this commit twice, in two folders, and compare it byte for byte
	scripts/release-check $(VERSION)

cosign: ## Sign dist/SHA256SUMS as the hosted workflow that calls it, without a key
	go run $(COSIGN) sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS

run: ## Start a complete service on this machine
	go run .

# natsid-data stays: its content prevents repeated IDs.
clean: ## Remove the files that build and test leave behind
	rm -f natsid *.test *.out
