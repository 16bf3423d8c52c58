FUZZTIME ?= 10s
N ?= 100000
FROM ?= 1
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help deps test faults sim lint fuzz bench build run clean
# `make -j deps test` must not start the tests before their needs are there.
.NOTPARALLEL:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The race detector needs cgo: a C compiler and the C library's headers. Tests of
# the MySQL store start a server of their own.
deps: ## Install what the tests need, if it is missing: a C compiler, MariaDB, Go modules
	@set -e; cc= db=; PATH="$$PATH:/usr/sbin:/usr/libexec:/usr/local/sbin"; \
	printf '#include <stdlib.h>\n' | $$(go env CC) -fsyntax-only -x c - 2>/dev/null || cc="a C compiler"; \
	command -v mariadbd >/dev/null || command -v mysqld >/dev/null || db="MariaDB"; \
	if [ "$$cc$$db" ]; then \
		lacks="$$cc$${cc:+$${db:+ and }}$$db"; \
		sudo=; [ "$$(id -u)" = 0 ] || ! command -v sudo >/dev/null || sudo="sudo "; \
		if command -v apt-get >/dev/null; then \
			do="$${sudo}apt-get update && $${sudo}env DEBIAN_FRONTEND=noninteractive apt-get install -y$${cc:+ gcc libc6-dev}$${db:+ mariadb-server}"; \
		elif command -v dnf >/dev/null; then do="$${sudo}dnf install -y$${cc:+ gcc}$${db:+ mariadb-server}"; \
		elif command -v apk >/dev/null; then do="$${sudo}apk add$${cc:+ gcc musl-dev}$${db:+ mariadb}"; \
		else \
			echo "deps: the tests need $$lacks. On macOS: xcode-select --install, brew install mariadb. Elsewhere: install gcc, the C headers, MariaDB." >&2; \
			exit 1; \
		fi; \
		echo "deps: the tests need $$lacks. Going to run: $$do"; \
		eval "$$do"; \
	fi
	go mod download
	go -C bench mod download
	go -C deploy mod download

# The race detector makes a simulated schedule several times as slow: 500 with it,
# 10,000 and the mutants without.
test: ## Run all tests with the race detector; installs nothing
	CGO_ENABLED=1 go test -race -timeout 8m ./...
	go test -timeout 8m -v -run '^(TestSimulation|TestMutants)$$' ./workerid
	CGO_ENABLED=1 go -C deploy test -race -timeout 4m ./...
	[ "$$(uname)" != Linux ] || go run ./faults -short -for 20s

faults: ## Kill, pause and mislead real processes, and write docs/faults.md (15 min; Linux)
	go run ./faults -parallel 4 -on-clock-step both -for 2m -markdown docs/faults.md

sim: ## Simulate N schedules of clocks, crashes and lost replies (100000), from seed FROM (1)
	go test -count=1 -timeout 0 -v -run '^TestSimulation$$' ./workerid -args -sim.n=$(N) -sim.from=$(FROM)

lint: ## gofmt, go vet, staticcheck, go.mod tidy
	@out=$$(gofmt -l .) || exit 1; [ -z "$$out" ] || { echo "not gofmt'ed, run gofmt -w on:" $$out >&2; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff
	go -C bench vet ./...
	go -C bench mod tidy -diff
	go -C deploy vet ./...
	go -C deploy mod tidy -diff

fuzz: ## Run each fuzz target for FUZZTIME (10s)
	@set -e; pkgs=$$(go list ./...); \
	for pkg in $$pkgs; do \
		names=$$(go test -list '^Fuzz' $$pkg); \
		for name in $$names; do case $$name in Fuzz*) \
			echo "== $$pkg $$name"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg;; \
		esac; done; \
	done

bench: ## Measure, side by side with bare NATS, other generators, and trouble (10 min)
	go -C bench run .
	go -C bench run . -for 1s tags
	go -C bench run . -for 5s -repeats 5 trouble
	go -C bench run . -for 300ms generators

build: ## Build the static binary ./natsid
	CGO_ENABLED=0 go build -trimpath -o natsid .

run: ## Start a whole service on this machine
	go run .

# natsid-data stays: what it holds is why no ID comes twice.
clean: ## Remove what build and test leave behind
	rm -f natsid *.test *.out
