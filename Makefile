# Targets for building, testing and measuring. Each target first installs its missing packages.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Most tests wait for sockets and timers, so more threads than cargo's default of one per core are useful.
TEST_THREADS ?= 8
CARGO := $(shell command -v cargo || echo $$HOME/.cargo/bin/cargo)

.DEFAULT_GOAL := help
.PHONY: help demo run build test kernel lint soak test-clients cli-page bench bench-control bench-workers bench-sections bench-transparent bench-share bench-aqm bench-paths bench-fleet bench-group \
	bench-upgrade bench-http2 bench-observed bench-passwords bench-calls bench-udp bench-tls bench-tunnels bench-lab figures check-figures check-lab check-paths check-dashboard deb try-deb try-readme dist try-dist musl \
	try-static try-kernels fuzz

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## Emulate a long path on this machine: a download direct, through one relay and through three; under a minute
	@scripts/setup demo
	$(CARGO) build --profile try --locked --package ekiden --package ekiden-lab
	@$(TARGET)/try/ekiden-lab demo

run: ## Build ekiden and run it on 127.0.0.1:1080 for SOCKS and HTTP clients
	@scripts/setup build
	$(CARGO) build --profile try --locked --package ekiden
	@echo
	@echo "ekiden listens on 127.0.0.1:1080. Try, in another terminal:"
	@echo "    curl -x socks5h://127.0.0.1:1080 https://example.com/"
	@echo "    curl -x http://127.0.0.1:1080 http://example.com/"
	@echo "    $(abspath $(TARGET))/try/ekiden status"
	@echo "Ctrl-C ends it."
	@echo
	@$(TARGET)/try/ekiden run -L auto://127.0.0.1:1080

build:
	@scripts/setup build
	$(CARGO) build --release --locked --workspace

test: ## Run all checks: format, lints, documentation, all tests (those that measure time run in virtual time), short fuzzing
	@scripts/setup test
	@scripts/setup lab
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory kernel || echo "make: the virtual kernel cannot be built; experiments in virtual time are not tested, and tests that measure time run in real time"
	$(CARGO) test --workspace --locked --no-default-features --test lacking
	@# Tests mostly wait, so fuzzing at the same time delays them little.
	@nice sh -c 'fuzz/run 5 && fuzz/run 7 config peers users' & fuzz=$$!; \
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --locked; tests=$$?; \
	wait $$fuzz && exit $$tests

kernel: ## Build the virtual kernel of the laboratory, unless there is one; six minutes
	@scripts/setup kernel
	$(CARGO) build --locked --package ekiden-lab
	@if $(TARGET)/debug/ekiden-lab kernel list | grep '^no virtual kernel' >/dev/null; then $(TARGET)/debug/ekiden-lab kernel build; fi

lint: ## Check format, the figures of scripts/house, clippy and documentation
	@scripts/setup build
	$(CARGO) fmt --all --check
	scripts/house --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --no-default-features --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

soak: ## Carry a million sessions one after another over sections, some of them reset; nine minutes
	@scripts/setup test
	$(CARGO) test --release --locked --test sections -- --ignored

test-clients: ## Test with slower real programs: Chromium, Firefox, ssh, ...
	@scripts/setup clients
	EKIDEN_TEST_CLIENTS=1 $(CARGO) test --locked --test clients_slow

cli-page: ## Write docs/cli.md from the help of all commands
	UPDATE_CLI_PAGE=1 $(CARGO) test --locked --test docs cli_page

bench: ## Compare one relay hop with haproxy, realm, nginx, socat, dante, microsocks and squid; as root
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/relay.py

bench-control: ## Compare one relay hop with haproxy on hosts whose congestion control is bbr, cubic or reno; as root, twelve minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	for control in bbr cubic reno; do \
		python3 benches/relay.py --default-control $$control --figures one,many,small,rate \
			--only splice-loop,ekiden-tcp,haproxy-tuned,haproxy,realm --out benches/control-$$control.md || exit 1; \
	done

bench-workers: ## Compare one relay hop with 1, 2, 4 and 8 worker threads; as root, six minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/workers.py

bench-sections: ## Compare chains of sections with tcp forwarding, ssh -L and stunnel; as root, ten minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/sections.py

bench-transparent: ## Compare transparent relays with tcp forwarding, haproxy and no relay; as root, ten minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/transparent.py

bench-share: ## Compare a slow link of the lab with and without interface shares; as root, half an hour
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden --package ekiden-lab
	python3 benches/share.py

bench-aqm: ## Measure the cost per packet of the tc program of ekiden aqm, all modes, up to 100,000 connections; as root
	@scripts/setup build
	$(CARGO) bench --locked --package ekiden-bpf --bench aqm

bench-paths: ## Measure path selection among up to 1,000 relays: time, memory, etcd's load; a minute
	@scripts/setup build
	$(CARGO) run --release --locked --package ekiden-proto --example fleet docs/pictures/scale.svg

bench-fleet: ## Run 500 sessions/s while etcd is stopped, killed, restored and slow; five minutes
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/fleet.py

bench-group: ## Run 2,000 sessions/s through a group of four relays, of which one is killed and one slowed, in virtual time; five minutes
	@scripts/setup bench
	$(CARGO) build --release --locked --package ekiden --package ekiden-lab
	target/release/ekiden-lab kernel run --watchdog 900s -- python3 benches/group.py --out /dev/null > benches/group.md

bench-upgrade: ## Run 500 downloads and 500 sessions/s while the relay is upgraded and reloaded; two minutes
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/upgrade.py

bench-http2: ## Compare 99 tunnels of one HTTP/2 connection alone and beside one that is not read, on a path of 50 ms; a few minutes
	@scripts/setup test
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden --package ekiden-lab
	@if $(TARGET)/release/ekiden-lab kernel list | grep '^no virtual kernel' >/dev/null; then $(TARGET)/release/ekiden-lab kernel build; fi
	python3 benches/http2.py

bench-observed: ## Compare the CPU of a relay with and without dashboard and metrics requests; nine minutes
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/observed.py

bench-calls: ## Count the system calls of one relay hop for each session and each GiB, beside haproxy and a splice loop; as root, a minute
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/calls.py

bench-udp: ## Compare datagrams per second of SOCKS5 UDP ASSOCIATE with dante; as root, two minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/udp.py

bench-tls: ## Compare one download through an HTTPS proxy with squid and Caddy; as root, four minutes
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/tls.py

bench-tunnels: ## Measure memory and answers of relays with 200,000 idle tunnels; as root, a minute
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/tunnels.py

bench-passwords: ## Measure the delay of a right password beside 60 wrong ones per second; a minute
	@scripts/setup test
	$(CARGO) build --release --locked
	python3 benches/passwords.py

bench-lab: ## Compare the throughput of the lab's emulator with TUN and no emulator
	@scripts/setup lab
	$(CARGO) bench --locked --package ekiden-lab --bench emulator

check-lab: ## Measure all acceptance criteria of the emulator; four minutes
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden-lab
	$(TARGET)/release/ekiden-lab check acceptance --full

figures: ## Run every experiment in full and write docs/results; resumes after an interrupt; days on two cores, as root
	@scripts/setup lab
	$(CARGO) build --release --locked --package ekiden --package ekiden-lab
	@if $(TARGET)/release/ekiden-lab kernel list | grep '^no virtual kernel' >/dev/null; then $(TARGET)/release/ekiden-lab kernel build; fi
	$(TARGET)/release/ekiden-lab figures $(FIGURES_OPTIONS)

check-figures: ## Make all published figures again and compare them with the stored ones; hours, as root
	@$(MAKE) figures FIGURES_OPTIONS=--check

check-paths: ## Check how often the path chooser finds the best path of simulated networks; a minute
	@scripts/setup build
	$(CARGO) test --release --locked --package ekiden-proto --lib -- --ignored --nocapture

check-dashboard: ## Check all queries of the Grafana dashboard with promtool
	@scripts/setup dashboard
	$(CARGO) test --locked --test metrics -- --ignored

deb: ## Build Debian packages of the daemon, of the lab and of its virtual kernel in target/debian
	@scripts/setup package
	PATH="$(CURDIR)/target/tools/bin:$$PATH" packaging/build-deb

try-readme: ## Follow the README on two fresh Debians with the package; as root
	@scripts/setup package
	PATH="$(CURDIR)/target/tools/bin:$$PATH" packaging/build-deb ekiden
	packaging/try-readme

dist: ## Build the files of a release in target/dist: archives, packages, images, checksums; signed with SIGN_KEY=FILE; as root
	@scripts/setup dist
	PATH="$(CURDIR)/target/tools/bin:$$PATH" packaging/build-dist

try-dist: ## Test the files in target/dist, those of another architecture by emulation; as root
	@scripts/setup dist
	packaging/try-dist
	packaging/try-rpm

try-deb: deb ## Test the packages in a fresh Debian: install, start, first request, virtual kernel; as root
	packaging/try-deb

musl: ## Build a static binary in target/static/ARCH; cross-compile with ARCH=aarch64
	@scripts/setup package
	packaging/build-static $(ARCH)

try-static: musl ## Test the static binary as in packaging/Containerfile; as root
	packaging/try-static

try-kernels: ## Test on Debian's kernels 6.1 and 6.12 in a machine emulator; as root, hours without KVM
	@scripts/setup kernels
	scripts/try-kernels

fuzz: ## Fuzz every parser for ten minutes
	@scripts/setup build
	fuzz/run 600
