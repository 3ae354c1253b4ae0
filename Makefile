# `make test` runs every package, `make check` adds what a change needs before it is
# merged, and `make check-all` is all the rest. `make help` lists the targets.

SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS  += --no-print-directory

GO     ?= go
# How many packages are tested at once. Each has loop devices, users, control groups and
# directories of its own. Most wait for disks and processes, so twice the processors.
JOBS   ?= $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))
# In make test-long most wait even longer: engine/promote uses a third of a processor, and else waits for the disk.
JOBS_LONG ?= $(shell echo $$((3 * $$(nproc 2>/dev/null || echo 2))))
PKGS   ?= ./...
# The slowest packages start first, in the order of their times in make test and in make test-long, so that none of
# them is left running alone at the end.
FIRST  := ./engine ./test/agents ./cmd/snapfs ./serve/page ./engine/promote ./backends/btrfs ./backends/fusecow \
	./test/walls ./test/realwork ./backends/fusecow/layer ./backends/pool ./backends/overlay ./engine/merge ./isolate
FIRST_LONG := ./cmd/snapfs ./engine ./test/agents ./engine/promote ./engine/merge ./backends/btrfs ./test/walls \
	./backends/fusecow ./test/realwork ./serve/page ./backends/overlayfuse ./backends/pool ./backends/overlay
# More arguments of go test: make test PKGS=./isolate FLAGS='-run Exec -v'
FLAGS  ?=
LINT   := $(GO) tool -modfile=internal/tools/go.mod golangci-lint
# As root, every test must run. An ordinary user's tests that need root say so
# and are counted at the end.
ROOT   := $(filter 0,$(shell id -u))
NOSKIP := $(if $(ROOT),1,)

# Systems beside linux that the whole program is built for, and the one program for Windows.
PLATFORMS = $(shell cat .ci/platforms)
WINDOWS  := ./cmd/snapfs-windows

# The results of each backend's conformance suite, for the table.
RESULTS := $(CURDIR)/out/conformance
# The programs under test, built once for all packages and for both users.
PROGRAMS := $(CURDIR)/out/programs
# The list of tests that make test-long runs with a larger budget.
LATER   := $(CURDIR)/out/later

# $(call tested,PACKAGES): with those of FIRST in front where all packages are tested.
tested = $(if $(filter ./...,$(1)),$(FIRST) ./...,$(1))

# The program is one static file; only the race detector links against C.
export CGO_ENABLED := 0
# A package compiled in one directory is reused in another, as by test-user.
export GOFLAGS := $(GOFLAGS) -trimpath

# The packages in which the detector can find a race: those that start goroutines,
# and those that run the conformance suite, which does. The tests of cmd and test
# start the program as users have it, built without the detector, which would see
# nothing there. make race PKGS=./engine/merge runs any other package.
GOING := ^[[:space:]]*go |\.Go\(|AfterFunc\(|t\.Parallel\(|snapshottest\.Run
RACES  = $(shell grep -rlE --include='*.go' '$(GOING)' backends bench engine internal isolate workflow | grep -v /testdata/ | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: check
check: ## tidy, lint, build, test and race: required before a merge
	@rm -f out/step/times
	@.ci/step tidy lint build test race
	@.ci/times

.PHONY: check-all
check-all: ## after make test: the rest: other platforms, long tests, POSIX, speed, an older kernel
	@.ci/rest

.PHONY: tidy
tidy: ## check that go.mod and go.sum list exactly the modules in use
	$(GO) mod tidy -diff
	$(GO) -C internal/tools mod tidy -diff

.PHONY: lint
lint: ## run go vet and golangci-lint with the import rules, for this platform
	$(GO) vet ./...
	$(LINT) config verify
	$(LINT) run ./...

.PHONY: lint-all
lint-all: ## run go vet for every other platform and every build tag
	GOARCH=amd64 $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	@# Most tests need Linux: for other platforms vet the code without them, and the tests that build there.
	lint=$$($(GO) tool -n -modfile=internal/tools/go.mod golangci-lint); for p in $(PLATFORMS); do export GOOS=$${p%/*} GOARCH=$${p#*/}; \
		$$lint run --tests=false --enable-only govet ./... 2>/dev/null; $(GO) vet $$(.ci/portable); done
	for a in amd64 arm64; do GOOS=windows GOARCH=$$a $(GO) vet $(WINDOWS) ./internal/wsl; done
	$(GO) vet -tags vm,posix,suites ./backends/zfs ./backends/zfsuser ./backends/fusecow/trial ./engine ./limits ./test/suites

.PHONY: fmt
fmt: ## format all Go files as lint requires
	$(LINT) fmt ./...

.PHONY: build
build: ## build snapfs and the programs that it starts, for this platform
	$(GO) build -trimpath -ldflags '-s -w' -o . $(filter-out $(WINDOWS),$(wildcard ./cmd/*))

.PHONY: build-all
build-all: ## build everything for every platform
	GOARCH=amd64 $(GO) build -ldflags '-s -w' ./...
	GOARCH=arm64 $(GO) build -ldflags '-s -w' ./...
	for p in $(PLATFORMS); do GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -ldflags '-s -w' ./...; done
	for a in amd64 arm64; do GOOS=windows GOARCH=$$a $(GO) build -trimpath -ldflags '-s -w' -o out/windows-$$a/snapfs.exe $(WINDOWS); done

.PHONY: programs
programs:
	@mkdir -p $(PROGRAMS)
	@$(GO) build -ldflags '-X github.com/snapfs/snapfs/engine/policy.SiteDir=/etc/snapfs-of-tests' -o $(PROGRAMS)/ $(filter-out $(WINDOWS),$(wildcard ./cmd/*))

.PHONY: test
test: programs ## test every package, as root and as an ordinary user; root skips none; leftovers fail
	@$(if $(filter ./...,$(PKGS)),rm -rf $(RESULTS);) mkdir -p -m 777 $(RESULTS)
	@.ci/users .ci/skips .ci/traceless env SNAPFS_TEST_SHARDS=2 SNAPFS_NO_SKIP=$(NOSKIP) SNAPFS_CONFORMANCE_OUT=$(RESULTS) SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs \
		LATER=$(if $(filter ./...,$(PKGS)),$(LATER)) .ci/gotest -exec $(CURDIR)/.ci/apart -p $(JOBS) -count=1 -parallel $(JOBS) -timeout 25m -vet=off $(FLAGS) $(call tested,$(PKGS))
	@$(if $(ROOT),SNAPFS_SECOND_PASS=1 SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs \
		.ci/skips .ci/as-user -p $(JOBS) -count=1 -parallel $(JOBS) -timeout 25m -vet=off $(FLAGS) \
		$(if $(filter ./...,$(PKGS)),./internal/run $(filter-out ./backends/%,$(FIRST)) $$(.ci/by-user),$(PKGS)))

.PHONY: test-long
test-long: programs ## run the tests that the last make test cut short: every step, more seeds, more rounds
	@[[ -e $(LATER) ]] || { echo 'test-long: no list of tests'; echo 'hint: make test'; exit 1; } >&2
	@.ci/users .ci/skips .ci/traceless env SNAPFS_TEST_SHARDS=4 SNAPFS_NO_SKIP=$(NOSKIP) SNAPFS_LONG=1 SNAPFS_CONFORMANCE_OUT=$(RESULTS) SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs \
		.ci/gotest -exec $(CURDIR)/.ci/apart -p $(JOBS_LONG) -count=1 -parallel $(JOBS) -timeout 30m -vet=off -run "^($$(cut -d' ' -f2 $(LATER) | sort -u | paste -sd'|'))$$" \
		$(if $(filter ./...,$(PKGS)),$$(printf 'github.com/snapfs/snapfs/%s\n' $(FIRST_LONG:./%=%) | grep -xFf <(cut -d' ' -f1 $(LATER)); cut -d' ' -f1 $(LATER) | sort -u),$(PKGS))

.PHONY: race
race: programs ## test concurrent packages with the race detector and -short (needs a C compiler)
	@command -v cc >/dev/null || { echo 'race: no C compiler, and the race detector needs one'; \
		echo 'hint: apt-get install gcc libc6-dev'; exit 1; } >&2
	@# A program with the detector sleeps for a second at its end by default; supervisors end often.
	@.ci/users .ci/skips .ci/traceless env CGO_ENABLED=1 SNAPFS_TEST_SHARDS=3 SNAPFS_NO_SKIP=$(NOSKIP) GORACE=atexit_sleep_ms=0 SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs \
		.ci/gotest -exec $(CURDIR)/.ci/apart -p $(JOBS) -count=1 -parallel $(JOBS) -timeout 25m -vet=off -race -short $(FLAGS) $(if $(filter ./...,$(PKGS)),$(filter $(RACES),$(FIRST)) $(RACES),$(PKGS))

.PHONY: entered
entered: ## count the functions that run and promote enter, and their packages (.ci/entered -v: by package)
	@.ci/entered

# For make fsx: the seeds, and the operations for each.
SEEDS  ?= 1 2 3
OPS    ?= 1000000

.PHONY: fsx
fsx: ## compare random operations on fusecow and a plain disk, OPS for each of SEEDS, with the race detector (as root)
	@for seed in $(SEEDS); do SNAPFS_FSX_SEED=$$seed SNAPFS_FSX_OPS=$(OPS) $(MAKE) race \
		PKGS=./backends/fusecow/trial FLAGS='-run TestFilesMatchAModel -v -timeout 3h'; done

.PHONY: fsx-some
fsx-some: ## make fsx with one seed and fewer operations
	@$(MAKE) fsx SEEDS=1 OPS=30000

# For make fuzz-merge: the first seed, and how many merges of texts and of trees.
SEED   ?= 0
TEXTS  ?= 10000
TREES  ?= 2000

.PHONY: fuzz-merge
fuzz-merge: ## compare TEXTS merges with git merge-file, and TREES with git merge-tree, from SEED on
	@SNAPFS_FUZZ_TEXTS="$(SEED) $(TEXTS)" SNAPFS_FUZZ_TREES="$(SEED) $(TREES)" \
		$(GO) test -count=1 -timeout 30m -run 'AgreesWithGitOnRandomEdits|TreesAgreeWithGit$$' -v ./engine/merge | grep -Ev '^ *(===|--- PASS: .*/)'

# For make commands: how many random commands and kills, from which seed.
COMMANDS ?= 2000
KILLS    ?= 150
RUNSEED  ?= $(shell date +%s)

.PHONY: commands
commands: programs ## play COMMANDS random commands with KILLS kills from RUNSEED on, and count every edit (as root)
	@.ci/users .ci/skips .ci/traceless env SNAPFS_NO_SKIP=$(NOSKIP) SNAPFS_COMMANDS="$(COMMANDS) $(KILLS) $(RUNSEED)" SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs \
		$(GO) test -exec $(CURDIR)/.ci/apart -count=1 -timeout 3h -run '^TestRandomCommands' -v ./test/commands

.PHONY: posix
posix: out/posix/bin/pjdfstest ## run all of pjdfstest on a mount of fusecow (as root; cargo builds the suite)
	@.ci/users .ci/skips .ci/traceless env SNAPFS_NO_SKIP=$(NOSKIP) SNAPFS_PJDFSTEST=$(CURDIR)/out/posix/bin/pjdfstest \
		$(GO) test -tags posix -count=1 -timeout 5m -run '^TestPOSIX$$' -v ./backends/fusecow/trial

out/posix/bin/pjdfstest:
	@command -v cargo >/dev/null || { echo 'posix: no cargo, and the suite is a program in Rust (1.85)'; exit 1; } >&2
	cargo install --quiet --locked --root out/posix pjdfstest@0.2.2

# For make suites: a regular expression of the places and units, as "root/overlay go/". For make suites-some: the
# seconds in which units begin, and the seed that orders them: a fixed one, so that a change is compared with the one
# before it; SUITESEED=$$(date +%s) takes others.
ONLY    ?=
SUITESECONDS ?= 35
SUITESEED ?= 1
SUITES  = mkdir -p -m 777 out/suites; .ci/users .ci/skips .ci/traceless env SNAPFS_NO_SKIP=$(NOSKIP) SNAPFS_SUITES_ONLY="$(ONLY)" \
	SNAPFS_SUITES_LOGS=$(CURDIR)/out/suites SNAPFS_PJDFSTEST=$(wildcard $(CURDIR)/out/posix/bin/pjdfstest) SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs

.PHONY: suites
suites: programs out/posix/bin/pjdfstest ## compare the tests of Go, Python, pjdfstest and stress-ng in sandboxes with the bare disk (as root)
	@$(SUITES) $(GO) test -tags suites -exec $(CURDIR)/.ci/apart -count=1 -timeout 2h -vet=off -v -run '^TestForeign' ./test/suites

.PHONY: suites-some
suites-some: programs ## make suites for what fits into SUITESECONDS, in the order of SUITESEED
	@$(SUITES) SNAPFS_SUITES="$(SUITESECONDS) $(SUITESEED)" \
		$(GO) test -tags suites -exec $(CURDIR)/.ci/apart -count=1 -timeout 10m -vet=off -v -run '^TestForeign' ./test/suites

.PHONY: grounds
grounds: ## run all of fusecow's conformance suite on ext4, btrfs and tmpfs, as root and as an ordinary user (as root)
	@.ci/users .ci/skips .ci/traceless env SNAPFS_NO_SKIP=$(NOSKIP) SNAPFS_WHOLE_GROUNDS=1 \
		$(GO) test -count=1 -timeout 30m -run '^TestConformance' $(FLAGS) ./backends/fusecow

.PHONY: test-user
test-user: programs ## run all tests as an ordinary user made for them (as root)
	@SNAPFS_TEST_PROGRAM=$(PROGRAMS)/snapfs .ci/skips .ci/as-user -p $(JOBS) -count=1 -parallel $(JOBS) -timeout 25m -vet=off $(FLAGS) $(call tested,$(PKGS))

.PHONY: check-vm
check-vm: ## run kernel-dependent suites on Linux 6.1 in a virtual machine (WHAT=limits: one suite)
	@nice test/vm/run $(WHAT)

.PHONY: keep-vm
keep-vm: ## save the results of check-vm for the table of Linux 6.1
	$(GO) run ./internal/conformance -keep docs/conformance-6.1.json out/vm

.PHONY: docs
docs: ## regenerate manuals, exit codes and the conformance table (after test and test-long, as root)
	$(GO) generate ./...
	@ls $(RESULTS)/*.json >/dev/null 2>&1 || { echo 'docs: no results of the conformance suite'; \
		echo 'hint: make test test-long'; exit 1; } >&2
	$(GO) run ./internal/conformance $(RESULTS) > out/conformance.md
	mv out/conformance.md docs/conformance.md
	$(GO) run ./internal/conformance -kernels docs/conformance-6.1.json > out/kernels.md
	mv out/kernels.md docs/kernels.md

.PHONY: generated
generated: ## check that generated files match their sources and the last test and test-long
	@.ci/unchanged $(MAKE) docs

.PHONY: bench-gate
bench-gate: build ## check that the stated ratios of speed hold on this machine
	./snapfs-bench --gate

.PHONY: benchmarks
benchmarks: build ## measure everything and write BENCHMARKS.md (as root, on a quiet machine)
	./snapfs-bench --markdown -o BENCHMARKS.md
	./snapfs-bench --gate --markdown >> BENCHMARKS.md

# Where make install puts snapfs, and below which directory, as for a package.
PREFIX  ?= /usr/local
DESTDIR ?=
# The directory of the built programs.
BUILT   ?= .
TO      = $(DESTDIR)$(PREFIX)
INSTALLED = bin/snapfs libexec/snapfs share/man/man1/snapfs.1 share/man/man1/snapfs-*.1 \
	share/bash-completion/completions/snapfs share/zsh/site-functions/_snapfs share/fish/vendor_completions.d/snapfs.fish

.PHONY: install
install: ## install snapfs, its manual and completions below PREFIX (/usr/local)
	@[[ $(BUILT) != . || -x snapfs && -z $$(find . -name '*.go' -newer snapfs -print -quit) ]] || $(MAKE) build
	install -d $(TO)/bin $(TO)/libexec/snapfs $(addprefix $(TO)/share/,man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	install -m 755 $(BUILT)/snapfs $(TO)/bin/
	install -m 755 $(BUILT)/snapfs-edge $(BUILT)/snapfs-fuse $(BUILT)/snapfs-serve $(TO)/libexec/snapfs/
	install -m 644 docs/man/man1/*.1 $(TO)/share/man/man1/
	$(BUILT)/snapfs completion bash > $(TO)/share/bash-completion/completions/snapfs
	$(BUILT)/snapfs completion zsh > $(TO)/share/zsh/site-functions/_snapfs
	$(BUILT)/snapfs completion fish > $(TO)/share/fish/vendor_completions.d/snapfs.fish

.PHONY: uninstall
uninstall: ## remove what make install has installed below PREFIX; sandboxes stay
	rm -rf $(addprefix $(TO)/,$(INSTALLED))

.PHONY: clean
clean: ## remove the output of build
	rm -rf snapfs snapfs-bench snapfs-edge snapfs-fuse snapfs-serve out
