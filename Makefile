# Covey: everything one types while working on it. `make` alone lists the targets.

CARGO  ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Of a release build. CARGO_TARGET_DIR is cargo's own variable.
TARGET := $(or $(CARGO_TARGET_DIR),target)
COVEY  := $(TARGET)/release/covey

.DEFAULT_GOAL := help
.PHONY: help demo test check fuzz workloads bench build python deb image install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## see what Covey is: a cluster on this machine, real programs, a failure (8 min the first time)
	@scripts/prepare demo
	$(CARGO) build --release --locked -p covey -p covey-capi
	@COVEY=$(abspath $(COVEY)) demo/run

test: ## run every test; what this machine cannot run is skipped and named
	@scripts/prepare test
	@CARGO=$(CARGO) scripts/test

check: ## formatting, lints, documentation; what CI runs before the tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps

fuzz: ## give every decoder wild bytes for SECONDS each (60)
	scripts/fuzz $(or $(SECONDS),60)

workloads: ## run real programs on two mounts and verify what they did (git, make, sqlite, rsync, tar, fsx ...)
	@scripts/prepare test
	$(CARGO) build --release --locked -p covey
	@COVEY=$(abspath $(COVEY)) workloads/run

bench: ## measure beside GlusterFS, MooseFS, diod and iperf3; Markdown on stdout (15 min)
	@scripts/prepare bench >&2
	$(CARGO) build --release --locked -p covey -p covey-measure --bins --examples
	@COVEY=$(abspath $(COVEY)) bench/run $(SUITES)

build: ## build the release binary and the libraries for C
	@scripts/prepare build
	$(CARGO) build --release --locked -p covey -p covey-preload -p covey-capi -p covey-fi -p covey-spc
	@CARGO=$(CARGO) scripts/build-bootget --release

# 77: it says why nothing was tested.
python: ## build the wheel of the Python package, and run its tests in a clean environment (needs PyPI)
	@COVEY=$(abspath $(COVEY)) scripts/python || [ $$? -eq 77 ]

deb: build ## make a Debian package: target/deb/covey_VERSION_ARCH.deb; `scripts/deb try` installs it in a clean Debian
	@scripts/prepare deb
	@COVEY=$(COVEY) scripts/deb

image: build ## make an OCI image of the program alone: target/image, without any tool for containers
	@COVEY=$(COVEY) scripts/image

# By sudo there is often no cargo: then what `make build` has built is installed.
install: $(if $(shell command -v $(CARGO)),build) ## install binary, libraries, MPI shims, manual pages, completions and systemd unit below PREFIX (/usr/local)
	@COVEY=$(COVEY) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) scripts/install

uninstall: ## remove what `make install` installed
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) scripts/install --remove

clean: ## remove what was built
	$(CARGO) clean
