# Everything a newcomer needs; each target installs what it lacks first.
CARGO := $(shell command -v cargo || echo $$HOME/.cargo/bin/cargo)

.DEFAULT_GOAL := help
.PHONY: help run build test lint test-clients bench fuzz

help: ## Shows this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

run: build ## Builds ekiden and runs it on 127.0.0.1:1080, for SOCKS and HTTP clients
	@echo
	@echo "ekiden listens on 127.0.0.1:1080. Try, in another terminal:"
	@echo "    curl -x socks5h://127.0.0.1:1080 https://example.com/"
	@echo "    curl -x http://127.0.0.1:1080 http://example.com/"
	@echo "    $(CURDIR)/target/release/ekiden status"
	@echo "Ctrl-C ends it."
	@echo
	@target/release/ekiden run -L auto://127.0.0.1:1080

build:
	@scripts/setup build
	$(CARGO) build --release --locked

test: ## Everything that must pass: format, lints, docs, unit, black box, namespaces, fuzz smoke
	@scripts/setup test
	@$(MAKE) --no-print-directory lint
	$(CARGO) test --workspace --locked
	fuzz/run 5

lint: ## Format, clippy and documentation
	@scripts/setup build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

test-clients: ## The slower real programs: Chromium, ssh, ...
	@scripts/setup clients
	EKIDEN_TEST_CLIENTS=1 $(CARGO) test --locked --test clients_slow

bench: ## One relay hop beside haproxy, nginx, socat, dante, microsocks and squid; as root
	@scripts/setup bench
	$(CARGO) build --release --locked
	python3 benches/relay.py

fuzz: ## Every parser, ten minutes each
	@scripts/setup build
	fuzz/run 600
