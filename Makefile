# `make` lists what can be done here. Go, make, git and gcc have to be installed; everything else is built from pinned
# Go modules.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Programs that check and generate code are built once for each set of pins (dev/tools) and each Go version.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/convoy/tools/$(shell { go env GOVERSION GOOS GOARCH; cat dev/tools/go.mod dev/tools/go.sum; } | git hash-object --stdin | cut -c1-12)
GOLANGCI_LINT := $(TOOLS)/golangci-lint
WORKFLOWCHECK := $(TOOLS)/workflowcheck
CONTROLLER_GEN := $(TOOLS)/controller-gen

# PREFIX is where `make install` puts bin/convoy.
PREFIX ?= $(HOME)/.local
# PKGS are the packages of the product that `make test` runs; TESTFLAGS are added to go test.
PKGS ?= ./...
TESTFLAGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/worker and bin/convoy
	go build -o bin/worker ./worker
	go build -o bin/convoy ./starter

.PHONY: install
install: build ## build, and put convoy into $(PREFIX)/bin
	install -d "$(PREFIX)/bin"
	install -m 0755 bin/convoy "$(PREFIX)/bin/convoy"

.PHONY: demo
demo: bin/dev ## see convoy work: waves, a stuck wave, a fix, a prune, on this machine; DEMO_EXIT=1 checks and ends
	@exec bin/dev/demo

.PHONY: up
up: ## start the embedded Kubernetes and Temporal until Ctrl-C; prints where they are
	@exec go run -C dev/build . up

.PHONY: test
test: bin/dev ## run all tests over one embedded stack; PKGS=./activities TESTFLAGS='-run Prune -v' runs some
	@exec bin/dev/test -packages "$(PKGS)" -- $(TESTFLAGS)

.PHONY: bench
bench: bin/dev ## compare whole syncs with the floor, on the embedded stack
	@exec bin/dev/test -packages ./e2e -- -tags bench -run '^TestBench' -v -timeout 60m $(TESTFLAGS)

.PHONY: sweep
sweep: bin/dev ## kill the worker around every single request of a sync, one after the other; make test does a sample
	@CONVOY_SWEEP=all exec bin/dev/test -packages ./e2e -- -run '^TestSweep' -v -timeout 90m $(TESTFLAGS)

.PHONY: chaos
chaos: bin/dev ## kill the API server, Temporal and the worker in mid-sync, three times each; CONVOY_SEED repeats a run
	@CONVOY_CHAOS=all exec bin/dev/test -packages ./e2e -- -run '^TestChaos' -v -timeout 60m $(TESTFLAGS)

.PHONY: fairness
fairness: bin/dev ## show on an idle machine that a dead cluster delays nobody else by more than a fifth
	@CONVOY_FAIRNESS=strict exec bin/dev/test -packages ./e2e -- -run '^TestFairness' -v -timeout 30m $(TESTFLAGS)

.PHONY: soak
soak: bin/dev ## 300 Releases on one worker for 15 minutes, with drift and requests; CONVOY_SEED repeats a run
	@CONVOY_SOAK=all exec bin/dev/test -packages ./e2e -- -run '^TestSoak' -v -timeout 60m $(TESTFLAGS)

.PHONY: lint
lint: lint-go lint-workflows lint-generated ## check style, import directions, workflow determinism and generated code

# The modules that are checked with the product's rules. dev/stack links a whole Temporal server: it is vetted when it
# is built and tested.
LINTED := . dev/build dev/run dev/browser

.PHONY: lint-go
lint-go: $(GOLANGCI_LINT)
	@for module in $(LINTED); do \
		echo "golangci-lint in $$module"; \
		(cd $$module && $(GOLANGCI_LINT) run --allow-parallel-runners --config "$(CURDIR)/.golangci.yaml" ./...); \
	done

.PHONY: lint-workflows
lint-workflows: $(WORKFLOWCHECK)
	@echo "workflowcheck"
	@go vet -vettool=$(WORKFLOWCHECK) -config="$(CURDIR)/workflowcheck.config.yaml" -show-pos ./workflows ./worker

.PHONY: lint-generated
lint-generated: $(CONTROLLER_GEN)
	@echo "generated code"
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; mkdir "$$fresh/crds"; \
	$(CONTROLLER_GEN) object output:object:dir="$$fresh" paths=./api/...; \
	$(CONTROLLER_GEN) crd output:crd:dir="$$fresh/crds" paths=./api/...; \
	if ! diff -u api/v1alpha1/zz_generated.deepcopy.go "$$fresh/zz_generated.deepcopy.go" || ! diff -ru --exclude='*.go' deploy/crds "$$fresh/crds"; then \
		echo "generated code is stale: run make generate" >&2; exit 1; \
	fi

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## format the Go code
	@for module in $(LINTED); do (cd $$module && $(GOLANGCI_LINT) fmt --config "$(CURDIR)/.golangci.yaml" ./...); done

.PHONY: generate
generate: $(CONTROLLER_GEN) ## generate deepcopy code and deploy/crds from api/
	$(CONTROLLER_GEN) object paths=./api/...
	$(CONTROLLER_GEN) crd output:crd:dir=deploy/crds paths=./api/...

.PHONY: clean
clean: ## remove bin/
	rm -rf bin

# The runners of demo and test. They are programs of their own, so that a signal reaches them directly.
.PHONY: bin/dev
bin/dev:
	@mkdir -p bin/dev && go build -C dev/run -o "$(CURDIR)/bin/dev/" ./...

$(GOLANGCI_LINT): PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(WORKFLOWCHECK): PACKAGE := go.temporal.io/sdk/contrib/tools/workflowcheck
$(CONTROLLER_GEN): PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(GOLANGCI_LINT) $(WORKFLOWCHECK) $(CONTROLLER_GEN):
	@echo "building $(@F), once"
	@mkdir -p $(TOOLS)
	@go -C dev/tools build -trimpath -ldflags '-s -w' -o $@.new $(PACKAGE) && mv $@.new $@
