# `make demo` and `make test` install missing dependencies (see scripts/setup) with a message, and
# continue. The only possible prompt is for sudo's password, on a terminal.

# Further options of the demo, e.g. make demo DEMO="--sim".
DEMO ?=
# Duration per fuzz target in seconds.
FUZZ_SECONDS ?= 20
# Scenarios for other projects' controllers, and selected ones, e.g. make peers PEERS="quinn-bbr".
SCENARIOS ?=
PEERS ?=

# Installation prefix [default: /usr/local]; root folder for packages; folder of build products.
export PREFIX DESTDIR LIBDIR INCLUDEDIR BINDIR UNITDIR BUILT

.PHONY: help demo test check bench bench-emulator bench-events bench-sim cluster fuzz peers install uninstall clean

help:
	@echo 'make demo    live video over a bad network, with and without Tidegate; prints the path of a report'
	@echo 'make test    all tests'
	@echo 'make check   format, lints, docs, licences, sizes and other checks'
	@echo 'make bench   benchmarks of a controller step and of a packet'
	@echo 'make bench-emulator'
	@echo '             packet rate of the emulator and of a plain forwarder in C (root or user namespaces)'
	@echo 'make bench-events'
	@echo '             delay and cost of kernel TCP events (root)'
	@echo 'make bench-sim'
	@echo '             speed of the simulator, also compared with ns-2 and ns-3 if installed'
	@echo 'make cluster a sweep on Slurm and on Dask on this machine, each with a node killed (root)'
	@echo 'make fuzz    $(FUZZ_SECONDS) s of fuzzing per target (fuzz/README.md)'
	@echo 'make peers   other projects'\'' controllers on SCENARIOS; results in runs/peers'
	@echo 'make install installs program, event daemon with systemd units, C headers and shared libraries'
	@echo '             below PREFIX (/usr/local);'
	@echo '             DESTDIR and make uninstall as usual'
	@echo 'make clean   removes build products; keeps runs'

demo:
	@scripts/demo $(DEMO)

test:
	@scripts/test

check:
	@scripts/check

bench:
	@scripts/bench

bench-emulator:
	@scripts/bench-emulator

bench-events:
	@scripts/bench-events

bench-sim:
	@scripts/bench-sim

cluster:
	@scripts/setup --cluster
	@scripts/cluster-examples

fuzz:
	@scripts/fuzz $(FUZZ_SECONDS)

peers:
	@PEERS="$(PEERS)" scripts/peers $(SCENARIOS)

install:
	@scripts/install

uninstall:
	@scripts/install --remove

clean:
	@scripts/clean
