# Everything a newcomer needs; each target installs what it lacks first.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Most tests wait for sockets and timers, so two cores serve more threads than the two that cargo would start.
TEST_THREADS ?= 4
CARGO := $(shell command -v cargo || echo $$HOME/.cargo/bin/cargo)

.DEFAULT_GOAL := help
.PHONY: help demo run build test lint test-clients bench bench-sections bench-transparent bench-share bench-aqm bench-paths bench-fleet \
	bench-upgrade bench-observed bench-passwords bench-lab check-lab check-dashboard deb try-deb musl try-static fuzz

help: ## Shows this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## A long path on this machine: a download direct, through one relay, through three; under a minute
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden --package ekiden-lab
	@$(TARGET)/release/ekiden-lab demo

run: build ## Builds ekiden and runs it on 127.0.0.1:1080, for SOCKS and HTTP clients
	@echo
	@echo "ekiden listens on 127.0.0.1:1080. Try, in another terminal:"
	@echo "    curl -x socks5h://127.0.0.1:1080 https://example.com/"
	@echo "    curl -x http://127.0.0.1:1080 http://example.com/"
	@echo "    $(abspath $(TARGET))/release/ekiden status"
	@echo "Ctrl-C ends it."
	@echo
	@$(TARGET)/release/ekiden run -L auto://127.0.0.1:1080

build:
	@scripts/setup build
	$(CARGO) build --release --locked --workspace

test: ## Everything that must pass: format, lints, docs, unit, black box, namespaces, fuzz smoke
	@scripts/setup test
	@scripts/setup lab
	@$(MAKE) --no-print-directory lint
	$(CARGO) test --workspace --locked --no-default-features --test lacking
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --locked
	fuzz/run 5
	fuzz/run 7 config peers users

lint: ## Format, the figures of scripts/house, clippy and documentation
	@scripts/setup build
	$(CARGO) fmt --all --check
	scripts/house --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --no-default-features --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

test-clients: ## The slower real programs: Chromium, ssh, ...
	@scripts/setup clients
	EKIDEN_TEST_CLIENTS=1 $(CARGO) test --locked --test clients_slow

bench: ## One relay hop beside haproxy, nginx, socat, dante, microsocks and squid; as root
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/relay.py

bench-sections: ## Chains of sections beside tcp forwarding, ssh -L and stunnel; as root, ten minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/sections.py

bench-transparent: ## Transparent relays beside tcp forwarding, haproxy and no relay; as root, ten minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/transparent.py

bench-share: ## Shares of an interface beside none, on a slow link of the laboratory; as root, half an hour
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden --package ekiden-lab
	python3 benches/share.py

bench-aqm: ## What a packet costs in the tc program of ekiden aqm, every mode, up to 100,000 connections; as root
	@scripts/setup build
	$(CARGO) bench --locked --package ekiden-bpf --bench aqm

bench-paths: ## What choosing among up to 1,000 relays costs: time, memory, etcd's load; a minute
	@scripts/setup build
	$(CARGO) run --release --locked --package ekiden-proto --example fleet docs/pictures/scale.svg

bench-fleet: ## 500 sessions a second while etcd is stopped, killed, restored and slow; as root, five minutes
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/fleet.py

bench-upgrade: ## 500 downloads and 500 sessions a second while the relay is upgraded and reloaded; two minutes
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/upgrade.py

bench-observed: ## CPU of a relay that is looked at, beside one that is not; nine minutes
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/observed.py

bench-passwords: ## How long a right password waits behind 60 wrong ones a second; a minute
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/passwords.py

bench-lab: ## How much the laboratory's emulator carries, beside TUN and no emulator
	@scripts/setup lab
	$(CARGO) bench --locked --package ekiden-lab --bench emulator

check-lab: ## Every acceptance criterion of the emulator, measured; four minutes
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden-lab
	$(TARGET)/release/ekiden-lab check acceptance --full

check-dashboard: ## Every query of the dashboard for Grafana, read by Prometheus' own promtool
	@scripts/setup dashboard
	$(CARGO) test --locked --test metrics -- --ignored

deb: ## Packages for Debian of the daemon and of the laboratory, in target/debian
	@scripts/setup package
	PATH="$(CURDIR)/target/tools/bin:$$PATH" packaging/build-deb

try-deb: deb ## The package in a fresh Debian: install, start, first request; as root
	packaging/try-deb

musl: ## A static binary, in target/static/ARCH; ARCH=aarch64 for that
	@scripts/setup package
	packaging/build-static $(ARCH)

try-static: musl ## The static binary as the container file has it; as root
	packaging/try-static

fuzz: ## Every parser, ten minutes each
	@scripts/setup build
	fuzz/run 600
