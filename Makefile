# The commands of this repository. They need Go, make and a POSIX shell, on
# Linux or macOS, and download nothing but Go modules. Those of a cluster also take Debian packages.

.DEFAULT_GOAL := help

GO ?= go
# The version and, by "make static", the commit in eventd.
VERSION ?= $(shell hack/version.sh)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# The time of all files in the image: that of the commit.
SOURCE_DATE_EPOCH ?= $(or $(shell git show -s --format=%ct HEAD 2>/dev/null),0)
LDFLAGS := $(if $(VERSION),-X k8s.io/component-base/version.gitVersion=$(VERSION))

# What bin/release makes a release of.
RELEASED = -version '$(VERSION)' -commit '$(COMMIT)' -epoch '$(SOURCE_DATE_EPOCH)'

# make image, push, release: where the image goes.
IMAGE_REPOSITORY ?=
IMAGE ?= bin/eventd-image.tar
# make image, release: what it is for, such as linux/amd64,linux/arm64; all five platforms if empty, of which the image
# is for those with Linux.
PLATFORMS ?=
OF_IMAGE = -image-repository '$(IMAGE_REPOSITORY)' $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

# make run: the duration (until Ctrl-C if empty), and the rate of Events.
DURATION ?=
RATE ?= 20

# The race detector needs a C compiler. Without one, CGO_ENABLED is 0.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
# How eventd is compiled for its image. All that needs no race detector is compiled in
# the same way, so that it is compiled once.
AS_DEPLOYED := CGO_ENABLED=0 GOFLAGS=-trimpath
# Compilers, checks and tests with the race detector end soon and make much garbage: to collect it less often saves
# them a sixth of their CPU. What measures memory, or runs eventd as a process, is not to inherit it.
LAZY := GOGC=400
lint style: export GOGC := 400
MODULE := github.com/eventd/eventd
# These packages start no goroutine and take no lock. The race detector would make their
# tests ten times as slow, and the memory that those of test/sizing measure larger.
UNSHARED := $(addprefix $(MODULE)/,pkg/correlator pkg/sink/internal/counter internal/replication/model test/sizing \
	internal/eventsize internal/fairlru internal/identity pkg pkg/config/v1alpha1 pkg/occurrence pkg/sink/internal/scheduler \
	hack/configschema hack/configuration hack/sizing test/metrics test/stored)
# The tests of these packages run eventd as a process, compiled as it is deployed: the race detector would see the clients
# alone, whose CPU they share with it.
PROCESSES := $(addprefix $(MODULE)/test/,deploy e2e)
# So do these, one after the other with the machine for themselves: the first uses all of it, and its leaders hold short
# Leases; the other measures latency and memory.
ALONE := $(addprefix $(MODULE)/test/,ha hostile)
# This package needs a Chromium: make browser.
BROWSER := $(MODULE)/cmd/kubectl-eventd/page/browser
# This package needs a Prometheus: make monitoring.
MONITORING := $(MODULE)/test/monitoring
# This package needs Linux and root: make cluster-test.
CLUSTER := $(MODULE)/test/cluster
# The packages that make check omits, since their tests need a control plane or a collector.
UNCHECKED := $(addprefix $(MODULE)/test/,cluster deploy destinations e2e ha hostile monitoring out soak testenv)
# The packages that take longest, with which make test and make check begin, and how many run at once: more than
# there are processors, since many tests wait most of the time. Those against a control plane wait less.
SLOWEST := $(addprefix $(MODULE)/,cmd/eventd/app test/soak test/out internal/relay pkg/sink pkg/intake pkg/history pkg/pipeline \
	pkg/delivery pkg/election hack/bench)
TESTATONCE ?= 2
CHECKATONCE ?= 4
# A process ends at once, not after a second in which goroutines that are left may race. make test
# has that second.
CHECKRACE := GORACE=atexit_sleep_ms=0
TESTTIMEOUT ?= 40m
TESTFLAGS ?=

# make fuzz: how many executions of each target, or for how long (10m).
FUZZTIME ?= 2000x

# make screenshots: where the pictures go.
SHOTS ?= .cache/screenshots

# make scale: flags such as -only=rollout.
SCALEFLAGS ?=

# make cluster: how many nodes.
NODES ?= 2
# make cluster-test: flags such as -turns=3.
CLUSTERFLAGS ?=
# What both need: the folder of all that a cluster runs, with eventd's image and plugin.
CLUSTERPARTS = .cache/cluster-parts

# make soak: flags such as -seeds=10, -seed=17 (the first one) and -run=Pause.
SOAKFLAGS ?=
# The same for the runs through failovers: -times=5, -run=Kill.
HAFLAGS ?=
SOAKTIMEOUT ?= 3h

# make versions: flags such as -only=v1.35.
VERSIONSFLAGS ?=

# make bench-delivery: flags such as -only=faults, -minutes=3 and -turns=3.
BENCHFLAGS ?=

.PHONY: help
help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /|/' | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'
	@echo '  DURATION=20s make run    ends by itself; KUBECONFIG=FILE make run    uses that cluster'

.PHONY: run
run: ## a kube-apiserver, two replicas of eventd, clients that feed them and receivers, with a live view; Ctrl-C takes all of it down
	@if [ -n "$$KUBECONFIG" ]; then \
		echo '• KUBECONFIG is set: this runs two replicas of eventd, and clients that feed them, against the cluster that it leads to'; \
		echo '• the first time on a machine they take a few minutes to compile; later they are there in seconds'; \
	else \
		echo '• this runs a control plane (kube-apiserver and etcd), two replicas of eventd and clients that feed them, all on this machine'; \
		echo '• the first time on a machine they take about nine minutes on two cores to compile; later they are there in seconds'; \
	fi
	@OUT=bin/ hack/build.sh 'eventd, its client and its plugin of kubectl' -ldflags '$(LDFLAGS)' ./cmd/eventd ./cmd/kubectl-eventd ./examples/feeder ./hack/run
	@bin/run -eventd bin/eventd -feeder bin/feeder -rate $(RATE) $(if $(DURATION),-duration $(DURATION))

.PHONY: cluster-parts
cluster-parts: bin/release
	@hack/cluster/build.sh >/dev/null
	@$(AS_DEPLOYED) OUT=$(CLUSTERPARTS)/ hack/build.sh 'the plugin of kubectl' -ldflags '$(LDFLAGS)' ./cmd/kubectl-eventd
	@version='$(VERSION)'; echo "$$version" >$(CLUSTERPARTS)/version; \
	bin/release image -o $(CLUSTERPARTS)/eventd.tar $(RELEASED) -version "$$version" -image-repository eventd.local/eventd -platforms linux/$$($(GO) env GOARCH) >/dev/null

.PHONY: cluster
cluster: cluster-parts ## a cluster of NODES real nodes on this machine, with eventd in Pods, and workloads that fail; Linux and root; Ctrl-C ends it
	@$(CLUSTERPARTS)/cluster up -nodes $(NODES) -parts $(CLUSTERPARTS) -image $(CLUSTERPARTS)/eventd.tar -run "exec hack/cluster/demo.sh $$(cat $(CLUSTERPARTS)/version)"

.PHONY: cluster-down
cluster-down: ## ends the cluster of make cluster, and removes what a killed one has left
	@$(CLUSTERPARTS)/cluster down

.PHONY: cluster-test
cluster-test: ## eventd as Pods among real kubelets, where that is possible; CLUSTERFLAGS=-turns=3 has every disturbance three times
	@if hack/cluster/possible.sh; then $(MAKE) --no-print-directory cluster-test-here; elif [ "$$CI" = true ]; then exit 1; fi

.PHONY: cluster-test-here
cluster-test-here: cluster-parts
	@cd test/chart && $(AS_DEPLOYED) OUT=../../$(CLUSTERPARTS)/ ../../hack/build.sh 'Helm' helm.sh/helm/v4/cmd/helm
	@test/collector/build.sh >/dev/null
	$(AS_DEPLOYED) $(GO) test -vet=off -count=1 -v -timeout $(if $(CLUSTERFLAGS),$(SOAKTIMEOUT),$(TESTTIMEOUT)) $(TESTFLAGS) ./test/cluster -args \
		-parts='$(CURDIR)/$(CLUSTERPARTS)' -image='$(CURDIR)/$(CLUSTERPARTS)/eventd.tar' -tag="$$(cat $(CLUSTERPARTS)/version)" $(CLUSTERFLAGS)

.PHONY: build
build: ## bin/eventd, and bin/kubectl-eventd, the plugin of kubectl
	@OUT=bin/ hack/build.sh 'eventd and its plugin of kubectl' -ldflags '$(LDFLAGS)' ./cmd/eventd ./cmd/kubectl-eventd

.PHONY: static
static: ## bin/eventd-static, for Linux: what the image has in it, the same bytes wherever it is built
	@VERSION='$(VERSION)' COMMIT='$(COMMIT)' hack/static.sh bin/eventd-static

# What makes the image, the chart and the release.
.PHONY: bin/release
bin/release:
	@$(AS_DEPLOYED) $(GO) build -C hack/release -o ../../bin/release .

.PHONY: image
image: bin/release ## bin/eventd-image.tar, for Linux on amd64 and arm64, with its digest: an OCI image layout, the same bytes wherever it is made; PLATFORMS=linux/amd64 makes a part; needs no Docker
	@bin/release image -o bin/eventd-image.tar $(RELEASED) $(OF_IMAGE)

.PHONY: push
push: bin/release ## IMAGE, bin/eventd-image.tar by default, to IMAGE_REPOSITORY, such as registry.example/eventd
	@bin/release push '$(IMAGE)' '$(IMAGE_REPOSITORY)'

.PHONY: release
release: bin/release ## dist/ with all that is published of VERSION=v1.2.3, whose image will be in IMAGE_REPOSITORY; the same bytes wherever it is made; PLATFORMS=linux/amd64 makes a part
	@if [ -n "$$(git status --porcelain)" ]; then \
		echo 'A release is of a commit, and this checkout has other files: commit or remove them (git status).' >&2; \
		exit 1; \
	fi
	@bin/release all -o dist -replace $(RELEASED) $(OF_IMAGE)

.PHONY: chart
chart: bin/release ## bin/eventd-VERSION.tgz, the Helm chart, the same bytes wherever it is packed; VERSION=v1.2.3
	@bin/release chart -o bin $(RELEASED)

# Tests against a control plane run each time. Of the others, Go keeps the results while nothing changes that they read.
.PHONY: test
test: ## every test, those against the local control plane included
	@echo '• building what the tests need: the control plane (minutes, the first time), a collector, the previous release, then the packages'
	@test/controlplane/build.sh >/dev/null
	@test/collector/build.sh >/dev/null
	@test/upgrade/build.sh >/dev/null
	@$(if $(RACE),,echo '• no C compiler, so the race detector is off')
	@hack/build.sh 'the packages under test' $(RACE) ./...
	@cd test/chart && $(AS_DEPLOYED) ../../hack/build.sh 'the tests of the chart, with the library of Helm' -test ./...
	@GOOS="$$($(GO) env GOOS)" hack/static.sh .cache/eventd-static
	@$(MAKE) --no-print-directory -j2 test-live test-rest test-units test-modules
	@echo '• replicas through failovers, and attacks on a running eventd, by themselves'
	EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(AS_DEPLOYED) $(GO) test -vet=off -p 1 -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) $(ALONE)

.PHONY: test-processes
test-processes:
	@echo '• processes of eventd, without the race detector'
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(AS_DEPLOYED) $(GO) test -vet=off -p 2 -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) $(PROCESSES)

# SORTED sets, in a shell, the packages to test with the race detector, and which of them need a control plane.
SORTED = tested="$$($(GO) list ./... | grep -vxF $(addprefix -e ,$(UNSHARED) $(PROCESSES) $(ALONE) $(MONITORING) $(BROWSER) $(CLUSTER)))"; \
	live="$$({ printf '%s\n' $(UNCHECKED); \
		$(GO) list -f '{{range .TestImports}}{{println $$.ImportPath .}}{{end}}{{range .XTestImports}}{{println $$.ImportPath .}}{{end}}' ./... | \
		sed -n 's| $(MODULE)/test/testenv$$||p'; } | sort -u | grep -xF "$$tested")"

# Of the packages that need a control plane, those that take longest.
.PHONY: test-live
test-live:
	@$(SORTED); export EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)"; \
	$(LAZY) $(GO) test -vet=off -p $(TESTATONCE) $(RACE) -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) \
		$$(printf '%s\n' $(SLOWEST) | grep -xF "$$live")

# What else needs a control plane.
.PHONY: test-rest
test-rest: test-processes
	@$(SORTED); export EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)"; \
	$(LAZY) $(GO) test -vet=off -p $(TESTATONCE) $(RACE) -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) \
		$$(echo "$$live" | grep -vxF $(addprefix -e ,$(SLOWEST)))

.PHONY: test-units
test-units:
	@$(SORTED); units="$$(echo "$$tested" | grep -vxF "$$live")"; export EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)"; \
	$(LAZY) $(GO) test -vet=off -p $(TESTATONCE) $(RACE) -timeout $(TESTTIMEOUT) $(TESTFLAGS) \
		$$(printf '%s\n' $(SLOWEST) | grep -xF "$$units") $$units
	@echo '• what starts no goroutine and takes no lock, without the race detector'
	$(AS_DEPLOYED) $(GO) test -vet=off -timeout $(TESTTIMEOUT) $(TESTFLAGS) $(UNSHARED)

.PHONY: test-modules
test-modules:
	@echo '• the same as a controller that imports eventd sees it'
	EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(LAZY) $(GO) -C test/dropin test -vet=off $(RACE) -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) ./...
	@echo '• the same as a module that can import nothing but pkg/'
	$(AS_DEPLOYED) $(GO) -C test/outside test -vet=off -timeout $(TESTTIMEOUT) $(TESTFLAGS) ./...
	@echo '• what makes the image and the release, with a release for this machine'
	$(AS_DEPLOYED) $(GO) -C hack/release test -vet=off -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) ./...
	@echo '• the chart, with the library of Helm'
	EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(AS_DEPLOYED) $(GO) -C test/chart test -vet=off -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each: a number of executions (2000x), or a duration (10m), which coverage guides
	@$(AS_DEPLOYED) GO='$(GO)' FUZZTIME='$(FUZZTIME)' hack/fuzz.sh

.PHONY: bench
bench: ## eventd beside client-go in one run, as ratios
	@test/controlplane/build.sh >/dev/null
	@OUT=bin/ hack/build.sh 'the benchmark and eventd' ./hack/bench ./cmd/eventd
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" bin/bench

.PHONY: bench-delivery
bench-delivery: ## the delivery beside an OpenTelemetry collector, in a burst and with faulty receivers, 35 minutes; BENCHFLAGS=-only=compare measures a part
	@test/controlplane/build.sh >/dev/null
	@test/collector/build.sh hack/bench/collector >/dev/null
	@OUT=bin/ hack/build.sh 'the benchmark and eventd' ./hack/bench/delivery ./cmd/eventd
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" EVENTD_COLLECTOR="$$(test/collector/build.sh hack/bench/collector)" bin/delivery $(BENCHFLAGS)

.PHONY: scale
scale: ## clusters of 1,000 to 15,000 nodes that report to one eventd: its cores, memory and writes, 15 minutes; SCALEFLAGS=-only=rollout measures a part
	@$(AS_DEPLOYED) OUT=bin/ hack/build.sh 'the simulation and eventd' ./hack/scale ./cmd/eventd
	@bin/scale $(SCALEFLAGS)

.PHONY: soak
soak: ## the runs under faults, through failovers and of random histories in full, about two hours, with figures; SOAKFLAGS=-seeds=10, HAFLAGS=-times=5 make fewer
	@echo '• building what the runs need: the control plane (minutes, the first time), then the packages'
	@test/controlplane/build.sh >/dev/null
	@test/upgrade/build.sh >/dev/null
	@hack/build.sh 'the packages under test' ./...
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(GO) test -count=1 -timeout $(SOAKTIMEOUT) \
		$$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | sed -n 's|^\([^ ]*\) .*$(MODULE)/test/seeds.*|\1|p') -times=20
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(GO) -C test/soak test -count=1 -timeout $(SOAKTIMEOUT) -soak -seeds=200 $(SOAKFLAGS)
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(GO) -C test/ha test -count=1 -timeout $(SOAKTIMEOUT) -soak $(HAFLAGS)
	@EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(GO) -C cmd/eventd/app test -count=1 -timeout $(SOAKTIMEOUT) -soak -run RotationsFailNoRequest

.PHONY: versions
versions: ## tests of each part against kube-apiservers of Kubernetes 1.34 to 1.37, before a release; VERSIONSFLAGS=-only=v1.35 tests a part
	@$(AS_DEPLOYED) OUT=bin/ hack/build.sh 'the packages under test' ./hack/versions
	@$(AS_DEPLOYED) bin/versions $(VERSIONSFLAGS)

.PHONY: monitoring
monitoring: ## the metrics, alerts and dashboard in a real Prometheus, which has to be there
	@for tool in prometheus promtool; do \
		command -v $$tool >/dev/null || { \
			echo "make monitoring needs prometheus and promtool in PATH, and there is no $$tool." >&2; \
			echo 'Debian and Ubuntu have both in the package prometheus (apt-get install prometheus).' >&2; \
			exit 1; }; \
	done
	@test/controlplane/build.sh >/dev/null
	@$(AS_DEPLOYED) hack/build.sh 'eventd' ./cmd/eventd ./test/testenv
	EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(AS_DEPLOYED) $(GO) test -vet=off -count=1 -timeout $(TESTTIMEOUT) $(TESTFLAGS) ./test/monitoring -prometheus

.PHONY: browser
browser: ## the page in a real browser, Chromium, which has to be there; TESTFLAGS=-screenshots=DIR keeps pictures
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		echo 'make browser needs chromium in PATH.' >&2; \
		echo 'Debian has it in the package chromium (apt-get install chromium).' >&2; \
		echo 'All that can be tested without it is part of make test.' >&2; \
		exit 1; }
	$(AS_DEPLOYED) $(GO) test -vet=off -count=1 -timeout $(TESTTIMEOUT) $(BROWSER) $(TESTFLAGS)

.PHONY: screenshots
screenshots: ## pictures of the page of a real eventd that is empty, busy and failing, in SHOTS; two of them replace docs/images
	@mkdir -p '$(SHOTS)'
	@test/controlplane/build.sh >/dev/null
	@$(AS_DEPLOYED) OUT=bin/ hack/build.sh 'eventd and its client' -ldflags '-X k8s.io/component-base/version.gitVersion=v0.9.0' ./cmd/eventd ./examples/feeder
	EVENTD_CONTROLPLANE="$$(test/controlplane/build.sh)" $(AS_DEPLOYED) $(GO) test -count=1 -timeout $(TESTTIMEOUT) $(BROWSER) -run TestScreenshots -v \
		-bin='$(CURDIR)/bin' -screenshots='$(abspath $(SHOTS))'
	@mkdir -p docs/images && cp '$(SHOTS)/page.png' '$(SHOTS)/page-dark.png' docs/images/

.PHONY: check
check: style ## formatting, vet, static analysis and all tests that need no control plane, in two minutes
	@echo '• tests that need no control plane'
	@checked="$$($(GO) list ./... | grep -vxF $(addprefix -e ,$(UNSHARED) $(UNCHECKED) $(BROWSER)))"; \
	$(CHECKRACE) $(LAZY) $(GO) test -short -vet=off -p $(CHECKATONCE) $(RACE) -timeout $(TESTTIMEOUT) $(TESTFLAGS) \
		$$(printf '%s\n' $(SLOWEST) | grep -xF "$$checked") $$checked
	@$(AS_DEPLOYED) $(GO) test -short -vet=off -timeout $(TESTTIMEOUT) $(TESTFLAGS) $(UNSHARED)

# What only calls the main function of a program of others is compiled, and not vetted, which would take minutes.
.PHONY: lint
lint: style ## formatting, vet, static analysis
	@echo '• go vet of the other modules'
	@test/controlplane/build.sh >/dev/null
	@$(AS_DEPLOYED) $(GO) -C test/controlplane vet .
	@$(AS_DEPLOYED) $(GO) -C test/dropin vet ./...
	@$(AS_DEPLOYED) $(GO) -C test/dropin vet -tags clientgo ./...
	@$(AS_DEPLOYED) $(GO) -C test/outside vet ./...
	@$(AS_DEPLOYED) $(GO) -C hack/release vet ./...
	@cd hack/release && $(AS_DEPLOYED) ../../bin/staticcheck ./...
	@$(AS_DEPLOYED) $(GO) -C test/chart vet ./...
	@echo '• nothing found'

# The checks of this module that need no control plane.
.PHONY: style
style:
	@echo '• gofmt'
	@unformatted=$$(find . -name '*.go' -not -path './.cache/*' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	@echo '• go mod tidy'
	@$(GO) mod tidy -diff
	@$(GO) -C test/dropin mod tidy -diff
	@$(GO) -C test/outside mod tidy -diff
	@$(GO) -C hack/release mod tidy -diff
	@$(GO) -C test/chart mod tidy -diff
	@$(GO) -C hack/cluster/addons mod tidy -diff
	@$(AS_DEPLOYED) hack/build.sh 'the packages to check' ./...
	@echo '• go vet'
	@$(AS_DEPLOYED) $(GO) vet ./...
	@echo '• staticcheck (a minute or two, the first time)'
	@$(AS_DEPLOYED) $(GO) build -C tools -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	@$(AS_DEPLOYED) bin/staticcheck ./...

.PHONY: clean
clean: ## remove what was built, the control plane included
	rm -rf bin dist .cache
